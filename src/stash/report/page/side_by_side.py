"""Several profiles as one table: each number, and whether it differs from the first profile's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.report.characters import harmless
from stash.report.comparison import Change, Quantity, compare, unlike
from stash.report.facts import iteration_unit, stalls_in_order
from stash.report.figures import figure, written
from stash.results.profile import Profile


@dataclass(frozen=True)
class Cell:
    """A number, how it differs from the first profile's, and whether that is more than chance."""

    value: str
    range: str
    change: str
    verdict: str  # "more", "less", "not significant" or nothing


@dataclass(frozen=True)
class Line:
    """One profile of the table."""

    name: str
    what: str
    provenance: str
    cells: Sequence[Cell | None]
    remark: str  # why it is not compared


@dataclass(frozen=True)
class SideBySide:
    """The table."""

    headings: Sequence[str]
    lines: Sequence[Line]


def side_by_side(profiles: Sequence[Profile], names: Sequence[str]) -> SideBySide:
    """Iteration, waiting and every stall's share, against the first profile."""
    quantities = _quantities(profiles)
    rows = compare(profiles, quantities)
    lines = [
        Line(
            name=name,
            what=f"{profile.machine.workers} workers, id {harmless(profile.id, limit=12)}",
            provenance=profile.provenance.value,
            cells=[
                None if change is None else _cell(change, quantity)
                for change, quantity in zip(row, quantities, strict=True)
            ],
            remark=_remark(profiles[0], profile),
        )
        for name, profile, row in zip(names, profiles, rows, strict=True)
    ]
    headings = [
        f"{one.name}, {one.unit}" if one.unit != "%" else f"{one.name}, %" for one in quantities
    ]
    return SideBySide(headings, lines)


def _quantities(profiles: Sequence[Profile]) -> list[Quantity]:
    unit, factor = iteration_unit(profiles[0])
    stalls: dict[str, None] = {}
    for profile in profiles:
        stalls |= dict.fromkeys(name for name, _ in stalls_in_order(profile))
    known = [name for name in stalls if name in STALL_COLUMNS]
    return [
        Quantity("iteration", unit, factor),
        Quantity("waiting", "%", 100.0),
        *(Quantity(name, "%", 100.0) for name in known),
    ]


#: Stalls that get a column: of unknown ones there might be any number.
STALL_COLUMNS = ("interconnect", "contention", "communication", "prep", "fetch")


def _cell(change: Change, quantity: Quantity) -> Cell:
    shown = figure(change.value, quantity.factor)
    if change.difference is None:
        return Cell(shown.estimate, shown.range, "", "")
    sign = "+" if change.difference.estimate > 0 else ""
    told = sign + written(change.difference, _unit(quantity), quantity.factor)
    verdict = "not significant"
    if change.significant:
        verdict = "more" if change.difference.estimate > 0 else "less"
    return Cell(shown.estimate, shown.range, told, verdict)


def _unit(quantity: Quantity) -> str:
    return "points" if quantity.unit == "%" else quantity.unit


def _remark(first: Profile, profile: Profile) -> str:
    if profile is first:
        return "the others are compared with it"
    reason = unlike(first, profile)
    return "" if reason is None else f"not compared: {reason}"
