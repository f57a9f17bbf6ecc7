"""Predicted stalls beside the measured ones, in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stash.report.characters import Charset
from stash.report.figures import figure, size_in_bytes, time_unit, written
from stash.results.document import derived

if TYPE_CHECKING:
    from stash.advise.whatif import EpochBeside, SingleChange, WhatIf

#: Kinds of changes as people say them.
KINDS = {
    "setting": "a setting",
    "training": "a setting that changes training",
    "hardware": "another machine",
}
MAX_CHANGES = 5


def print_whatif(found: WhatIf, console: Console) -> None:
    """What was asked, the two columns, what would be enough, and what would help most."""
    charset = Charset(ascii_only=console.options.ascii_only)

    def say(text: str, style: str = "") -> None:
        console.print(Text(charset.safe(text), style=style))

    say(f"{found.workload}, profile {found.profile}, {found.provenance.value}")
    say(f"What if: {', '.join(found.changes) or 'nothing changes'}", "bold")
    console.print()
    console.print(_table(found))
    say(
        "Predictions have no interval; docs/whatif.md tells how far they were off in the lab.",
        "dim",
    )
    console.print()
    for line in [*_needs(found), *_advice(found), *found.assumptions]:
        say(line)


def _table(found: WhatIf) -> Table:
    unit, factor = time_unit(
        max((one.seconds_per_iteration.estimate for one in found.steps.values()), default=1.0)
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in ("", found.provenance.value, "predicted"):
        table.add_column(heading, overflow="fold")
    for name, step in found.steps.items():
        after = derived(step.predicted_seconds_per_iteration)
        before = written(step.seconds_per_iteration, "", factor)
        table.add_row(f"step {name}, {unit}", before, figure(after, factor).estimate)
    for name, stall in found.stalls.items():
        after = derived(stall.predicted_seconds_per_iteration)
        before = written(stall.seconds_per_iteration, "", factor)
        table.add_row(f"stall {name}, {unit}", before, figure(after, factor).estimate)
    for name, epoch in (("later epochs", found.later), ("first epoch", found.first)):
        if epoch is not None:
            table.add_row(f"{name}, samples/s", _rate(epoch.samples_per_second), _bounds(epoch))
    return table


def _bounds(epoch: EpochBeside) -> str:
    high, low = epoch.predicted_samples_per_second, epoch.predicted_low_samples_per_second
    return _rate(high) if low == high else f"{_rate(low)} to {_rate(high)}"


def _needs(found: WhatIf) -> Iterator[str]:
    needs = found.needs
    if needs.loader_workers_per_worker is not None and needs.cores is not None:
        yield (
            f"To keep the devices busy: {_count(needs.loader_workers_per_worker)} per worker; "
            f"{_rate(needs.cores)} cores for them and for training."
        )
    if needs.storage_bytes_per_second is not None:
        cache = ""
        if needs.cache_bytes is not None:
            cache = (
                f", or a cache of {size_in_bytes(needs.cache_bytes)} with the storage that is there"
                if needs.cache_bytes > 0
                else "; the storage that is there is enough"
            )
        yield f"Storage of {size_in_bytes(needs.storage_bytes_per_second)}/s would do{cache}."
    if found.cached_fraction is not None:
        yield (
            f"{100 * found.cached_fraction:.0f} % of the data stays in memory: rates of later "
            "epochs are between a cache that evicts what is needed next and one that keeps what "
            "it has."
        )


def _advice(found: WhatIf) -> Iterator[str]:
    if not found.single_changes:
        yield "No single change that is known here would remove anything worth it."
        return
    if found.cheapest is not None:
        best = _change(found.cheapest)
        yield f"The cheapest single change that removes most of the wait: {best}."
    else:
        yield "No single change removes half of the wait. The best of each kind:"
    for one in found.single_changes[:MAX_CHANGES]:
        if one != found.cheapest:
            yield f"  {_change(one)}"


def _change(one: SingleChange) -> str:
    percent = figure(derived(100 * one.removed_fraction)).estimate
    epoch = "later epochs" if one.epoch == "later" else "the first epoch"
    return f"{one.option} ({KINDS[one.kind]}), {percent} % of what {epoch} wait"


def _count(loader_workers: int) -> str:
    return f"{loader_workers} loader worker{'' if loader_workers == 1 else 's'}"


def _rate(number: float) -> str:
    return figure(derived(number)).estimate
