"""Several profiles as one table: each number, and whether it differs from the first profile's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.report.characters import harmless
from stash.report.facts import iteration_unit
from stash.report.figures import figure
from stash.report.words import undivided_stalls
from stash.results.comparison import Change, compare, unlike
from stash.results.profile import Profile
from stash.results.steps import STALL_BY_NAME


@dataclass(frozen=True)
class Quantity:
    """Something that every profile has one of, with the factor to the unit that people read."""

    name: str
    unit: str
    factor: float


@dataclass(frozen=True)
class Cell:
    """A number, how it differs from the first profile's, and whether that is more than chance."""

    value: str
    range: str
    change: str
    change_range: str
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


def side_by_side(
    profiles: Sequence[Profile], names: Sequence[str], *, anyway: bool = False
) -> SideBySide:
    """Iteration, waiting and every stall's share, against the first profile."""
    quantities = _quantities(profiles)
    rows = compare(profiles, [one.name for one in quantities], anyway=anyway)
    lines = [
        Line(
            name=name,
            what=_what(profile),
            provenance=profile.provenance.value,
            cells=[
                None if change is None else _cell(change, quantity)
                for change, quantity in zip(row, quantities, strict=True)
            ],
            remark=_remark(profiles[0], profile, anyway=anyway),
        )
        for name, profile, row in zip(names, profiles, rows, strict=True)
    ]
    return SideBySide([f"{one.name}, {one.unit}" for one in quantities], lines)


def _quantities(profiles: Sequence[Profile]) -> list[Quantity]:
    unit, factor = iteration_unit(profiles[0])
    found = {name for profile in profiles for name, _ in undivided_stalls(profile)}
    return [
        Quantity("iteration", unit, factor),
        Quantity("waiting", "%", 100.0),
        *(
            Quantity(stall.name, "%", 100.0)
            for stall in STALL_BY_NAME.values()
            if stall.name in found
        ),
    ]


def _cell(change: Change, quantity: Quantity) -> Cell:
    shown = figure(change.value, quantity.factor)
    if change.difference is None:
        return Cell(shown.estimate, shown.range, "", "", "")
    told = figure(change.difference, quantity.factor)
    sign = "+" if change.difference.estimate > 0 else ""
    verdict = "not significant"
    if change.significant:
        verdict = "more" if change.difference.estimate > 0 else "less"
    return Cell(shown.estimate, shown.range, sign + told.estimate, told.range, verdict)


def _what(profile: Profile) -> str:
    machine = profile.machine
    device = harmless(machine.device, limit=30)
    return f"{machine.workers} x {device}, {harmless(profile.id, limit=12)}"


def _remark(first: Profile, profile: Profile, *, anyway: bool) -> str:
    if profile is first:
        return "the others are compared with it"
    reason = unlike(first, profile)
    if reason is None:
        return ""
    words = "compared all the same, although" if anyway else "not compared:"
    return f"{words} {harmless(str(reason))}"
