"""From the profile of a cell to the numbers that a study compares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stash.results.document import Interval
from stash.results.profile import Profile
from stash.study.document import Cell, CellNumbers, StudiedMachine, StudiedModel, StudyStall

#: The step that stands for an iteration whose data are there.
EXCHANGED = ("scaleout", "node", "solo")
#: One step against itself, and what a study compares by itself (see `with_network`).
LEFT_OUT = ("noise", "network")


def numbers_of(
    profile: Profile, file: str, model: StudiedModel, machine: StudiedMachine
) -> CellNumbers:
    """The numbers of one cell."""
    step = next(name for name in EXCHANGED if name in profile.steps)
    each = profile.steps[step].seconds_per_iteration
    per_worker = math.ceil(model.samples / machine.workers)
    seconds = scaled(each, math.ceil(per_worker / profile.workload.batch_per_worker))
    price = machine.price_usd_per_hour
    return CellNumbers(
        provenance=profile.provenance,
        profile=file,
        steps={name: one.seconds_per_iteration for name, one in profile.steps.items()},
        stalls={
            name: StudyStall(
                seconds_per_iteration=stall.seconds_per_iteration,
                percent=stall.percent,
                percent_of=stall.percent_of,
                against="",
            )
            for name, stall in profile.stalls.items()
            if name not in LEFT_OUT
        },
        epoch_seconds=seconds,
        epoch_usd=None if price is None else scaled(seconds, price / 3600),
        memory_percent=profile.run.peak_device_memory_percent,
    )


def with_network(cells: Sequence[Cell], machines: Sequence[StudiedMachine]) -> tuple[Cell, ...]:
    """The paper's network stall: several machines against one with as many GPUs of the kind."""
    known = {one.name: one for one in machines}

    def alike(cell: Cell, numbers: CellNumbers) -> tuple[object, ...]:
        machine = known[cell.machine]
        of = (machine.family, machine.workers, numbers.provenance)
        return (cell.model, cell.batch, cell.repeat, *of)

    # In reverse, so that the first of several machines stays.
    single = {
        alike(cell, cell.numbers): (cell.machine, cell.numbers)
        for cell in reversed(cells)
        if cell.numbers is not None and known[cell.machine].nodes == 1
    }

    def compared(cell: Cell) -> Cell:
        if cell.numbers is None or known[cell.machine].nodes == 1:
            return cell
        other = single.get(alike(cell, cell.numbers))
        if other is None:
            return cell
        stall = _network(cell.numbers, other[1], other[0])
        stalls = {**cell.numbers.stalls, "network": stall}
        return cell.model_copy(
            update={"numbers": cell.numbers.model_copy(update={"stalls": stalls})}
        )

    return tuple(compared(cell) for cell in cells)


def _network(spread: CellNumbers, single: CellNumbers, against: str) -> StudyStall:
    """Bounds are those of the exchange across machines; what it is compared with is taken as is."""
    base = single.steps["node"].estimate
    seconds = spread.steps["scaleout"].estimate - base
    added = spread.stalls["scale-out"].seconds_per_iteration
    shift = seconds - added.estimate
    interval = Interval(
        estimate=seconds,
        low=None if added.low is None else added.low + shift,
        high=None if added.high is None else added.high + shift,
    )
    return StudyStall(
        seconds_per_iteration=interval,
        percent=scaled(interval, 100 / base),
        percent_of="node",
        against=against,
    )


def scaled(value: Interval, factor: float) -> Interval:
    """An interval in another unit."""
    return Interval(
        estimate=value.estimate * factor,
        low=None if value.low is None else value.low * factor,
        high=None if value.high is None else value.high * factor,
    )
