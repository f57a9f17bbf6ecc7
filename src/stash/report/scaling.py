"""A sweep over worker counts as a table: what each added worker brings, and what holds it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from stash.errors import StashError
from stash.report.characters import Charset
from stash.report.figures import derived, figure, with_unit
from stash.report.words import largest_stall
from stash.results.comparison import SAME_WORKLOAD, first_difference
from stash.results.document import Interval
from stash.results.profile import Profile
from stash.results.whole import whole_step

#: Beside the workload, what must be the same for a ratio of two profiles to mean anything.
SAME_MACHINE = ("device", "torch", "backend")


@dataclass(frozen=True, kw_only=True)
class ScalingRow:
    """One worker count of a sweep, against the smallest one."""

    workers: int
    step: str
    samples_per_second: Interval
    speed_up: float
    efficiency: float
    waiting: Interval | None
    largest_stall: str | None
    largest_share: Interval | None


def scaling_rows(profiles: Sequence[Profile]) -> list[ScalingRow]:
    """Rows by worker count. Speed-up and efficiency are relative to the fewest workers."""
    ordered = sorted(profiles, key=lambda profile: profile.machine.workers)
    if not ordered:
        raise StashError("A scaling table needs at least one profile.", exit_code=2)
    for other in ordered[1:]:
        _require_comparable(ordered[0], other)
    step = _common_step(ordered)
    base_workers = ordered[0].machine.workers
    base = _samples_per_second(ordered[0], step).estimate
    return [_row(profile, step, base, base_workers) for profile in ordered]


def render_scaling(profiles: Sequence[Profile]) -> ScalingTable:
    """The table of a sweep, for a terminal."""
    return ScalingTable(scaling_rows(profiles))


class ScalingTable:
    """Lays the rows out once the terminal's characters are known."""

    def __init__(self, rows: Sequence[ScalingRow]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        charset = Charset(ascii_only=options.ascii_only)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for heading in (
            "workers",
            "samples/s",
            "speed-up",
            "efficiency",
            "waiting",
            "largest stall",
        ):
            table.add_column(heading, overflow="fold")
        for row in self._rows:
            table.add_row(*(Text(charset.safe(cell)) for cell in _cells(row)))
        yield table
        yield Text(
            f"By step {self._rows[0].step}, against {self._rows[0].workers} worker"
            f"{'' if self._rows[0].workers == 1 else 's'}. Intervals are 95 %.",
            style="dim",
        )


def _cells(row: ScalingRow) -> list[str]:
    rate = figure(row.samples_per_second)
    largest = "none significant"
    if row.largest_stall is not None and row.largest_share is not None:
        largest = f"{row.largest_stall} {with_unit(figure(row.largest_share, 100).estimate, '%')}"
    return [
        str(row.workers),
        f"{rate.estimate} ({rate.range})",
        f"{row.speed_up:.3g} x",
        f"{100 * row.efficiency:.3g} %",
        "-" if row.waiting is None else with_unit(figure(row.waiting, 100).estimate, "%"),
        largest,
    ]


def _row(profile: Profile, step: str, base: float, base_workers: int) -> ScalingRow:
    rate = _samples_per_second(profile, step)
    workers = profile.machine.workers
    speed_up = rate.estimate / base if base else 0.0
    largest = largest_stall(profile)
    return ScalingRow(
        workers=workers,
        step=step,
        samples_per_second=rate,
        speed_up=speed_up,
        efficiency=speed_up * base_workers / workers,
        waiting=profile.waiting.later,
        largest_stall=None if largest is None else largest[0],
        largest_share=None if largest is None else largest[1].share,
    )


def _require_comparable(one: Profile, other: Profile) -> None:
    found = first_difference(one, other, workload=SAME_WORKLOAD, machine=SAME_MACHINE)
    if found is not None:
        raise StashError(
            f"These profiles cannot be put in one scaling table: {found}. "
            "Measure all worker counts with the same workload and software.",
            exit_code=2,
        )


def _common_step(profiles: Sequence[Profile]) -> str:
    """The fullest iteration that every profile measured, so that like is divided by like."""
    shared = set.intersection(*(set(profile.steps) for profile in profiles))
    step = next((name for name in ("warm", "node", "cold") if name in shared), None)
    if step is None:
        steps = sorted({str(whole_step(profile)) for profile in profiles})
        raise StashError(
            "A scaling table needs step warm or node in every profile; found "
            f"{', '.join(steps)}. Measure with --steps node,warm.",
            exit_code=2,
        )
    return step


def _samples_per_second(profile: Profile, step: str) -> Interval:
    samples = profile.workload.batch_per_worker * profile.machine.workers
    seconds = profile.steps[step].seconds_per_iteration
    low, high = seconds.low, seconds.high
    known = low is not None and high is not None and low > 0
    return derived(
        samples / seconds.estimate if seconds.estimate > 0 else 0.0,
        samples / high if known and high else None,
        samples / low if known and low else None,
    )
