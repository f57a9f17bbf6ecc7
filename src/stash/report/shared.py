"""How loader workers are divided among jobs, in a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stash.advise.share import JobShare, Share
from stash.report.characters import Charset
from stash.report.figures import figure
from stash.results.document import derived


def print_share(found: Share, console: Console) -> None:
    """What to set for each job, and what it gains over an even split."""
    charset = Charset(ascii_only=console.options.ascii_only)
    console.print(Text(_headline(found), style="bold"))
    console.print()
    console.print(_table(found, charset))
    console.print(Text(_note(found), style="dim"))


def _headline(found: Share) -> str:
    total, even = _number(found.samples_per_second), _number(found.even_samples_per_second)
    if found.gain_percent < 0.05:
        return f"PREDICTED: an even split is the best there is, {even} samples/s in all."
    return (
        f"PREDICTED: {total} samples/s in all, {found.gain_percent:.1f} % more than the {even} "
        "of an even split."
    )


def _table(found: Share, charset: Charset) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in ("job", "num_workers", "samples/s", "even split", "samples/s", "at most"):
        table.add_column(heading, overflow="fold")
    for job in found.jobs:
        table.add_row(*(Text(charset.safe(cell)) for cell in _cells(job)))
    return table


def _cells(job: JobShare) -> tuple[str, ...]:
    return (
        f"{job.workload[:24]} {job.profile[:8]}, {job.provenance.value}",
        str(job.loader_workers_per_worker),
        _number(job.samples_per_second),
        str(job.even_loader_workers_per_worker),
        _number(job.even_samples_per_second),
        _number(job.most_samples_per_second),
    )


def _note(found: Share) -> str:
    data = (
        "Data come from storage, which each job is taken to have for itself."
        if found.first_epoch
        else "Data come from memory, as in later epochs; --first-epoch counts storage."
    )
    return (
        f"num_workers is of each training worker. {found.loader_workers_used} loader workers on "
        f"{found.cores} cores, of which training keeps {found.cores_for_training} busy. Rates are "
        f"those that each part showed alone. {data}"
    )


def _number(samples_per_second: float) -> str:
    return figure(derived(samples_per_second)).estimate
