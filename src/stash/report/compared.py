"""Profiles side by side in a terminal, in the words of the page; and the paper's network stall."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stash.advise.compare import NetworkComparison, Which
from stash.report.characters import Charset
from stash.report.figures import time_unit, written
from stash.report.names import names_of
from stash.report.side_by_side import Cell, SideBySide, side_by_side
from stash.results.profile import Profile

WIDE = 92
NOTE = (
    "Changes are to the first profile. Intervals are 95 %, of predictions 90 %; a change whose "
    "interval holds zero is not significant."
)


def print_comparison(profiles: Sequence[Profile], console: Console, *, anyway: bool) -> None:
    """A block a profile, then a row for each quantity of each profile."""
    charset = Charset(ascii_only=console.options.ascii_only)
    found = side_by_side(profiles, names_of(profiles), anyway=anyway)
    for line in found.lines:
        console.print(Text(charset.safe(f"{line.name}: {line.what}, {line.provenance}")))
        if line.remark:
            console.print(Text(charset.safe(f"  {line.remark}"), style="dim"))
    console.print()
    console.print(_table(found, charset, gap=1 if console.width >= WIDE else 0))
    console.print(Text(NOTE, style="dim"))


def print_network_stall(found: NetworkComparison, console: Console) -> None:
    """One sentence, and the two times that it comes from."""
    charset = Charset(ascii_only=console.options.ascii_only)
    unit, factor = time_unit(found.one_seconds_per_iteration.estimate)
    percent = written(found.percent, "%")
    workers = f"{found.one.workers} workers"
    if found.many.workers != found.one.workers:
        workers = f"{found.many.workers} workers against {found.one.workers}"
    verdict = "" if found.significant else ", which is not significant"
    console.print(
        Text(
            f"Network stall of {workers} on {found.many.nodes} nodes: {percent} of one node's "
            f"iteration{verdict}.",
            style="bold",
        )
    )
    for which, step, seconds in (
        (found.one, found.one_step, found.one_seconds_per_iteration),
        (found.many, found.many_step, found.many_seconds_per_iteration),
    ):
        time = written(seconds, unit, factor)
        console.print(Text(charset.safe(f"  {_which(which)}, step {step}: {time}")))
    stall = written(found.seconds_per_iteration, unit, factor)
    console.print(
        Text(f"  network: {stall} per iteration. Intervals are 95 %, of predictions 90 %.")
    )


def _which(which: Which) -> str:
    machine = which.instance or which.device
    nodes = f"{which.nodes} x " if which.nodes > 1 else ""
    return f"{which.id} {which.workload} on {nodes}{machine}, {which.provenance.value}"


def _table(found: SideBySide, charset: Charset, *, gap: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)
    for heading in ("", "", "value", "change", "significant?"):
        table.add_column(heading, overflow="fold")
    for column, heading in enumerate(found.headings):
        for row, line in enumerate(found.lines):
            cell = line.cells[column]
            mark = line.name.split(" ")[0]
            first = heading if row == 0 else ""
            table.add_row(*(Text(charset.safe(text)) for text in (first, mark, *_words(cell))))
    return table


def _words(cell: Cell | None) -> tuple[str, str, str]:
    if cell is None:
        return "-", "", ""
    change = f"{cell.change} ({cell.change_range})" if cell.change else ""
    return f"{cell.value} ({cell.range})", change, cell.verdict
