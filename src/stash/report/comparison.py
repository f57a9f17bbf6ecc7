"""Two profiles against each other: what differs, how surely, and when they may not be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stash.report.bars import iteration_seconds, whole_step
from stash.report.characters import harmless
from stash.report.figures import derived
from stash.results.document import Interval
from stash.results.profile import Profile

#: What must be the same for one profile to be subtracted from another.
SAME_WORKLOAD = ("name", "parameters", "batch_per_worker", "dtype", "optimizer", "data")
SAME_SOFTWARE = ("torch",)


@dataclass(frozen=True)
class Quantity:
    """Something that every profile has one of, with the factor to the unit that people read."""

    name: str
    unit: str
    factor: float


@dataclass(frozen=True)
class Change:
    """One quantity of a profile, and its difference to the same of the first profile."""

    value: Interval
    difference: Interval | None  # none for the first profile and where they may not be subtracted

    @property
    def significant(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        found = self.difference
        if found is None or found.low is None or found.high is None:
            return False
        return not found.low <= 0 <= found.high


def compare(
    profiles: Sequence[Profile], quantities: Sequence[Quantity]
) -> list[list[Change | None]]:
    """A row a profile: each quantity with its difference to the first profile's."""
    first = profiles[0]
    return [
        [
            _change(value_of(first, one.name), value_of(profile, one.name), alike=alike)
            for one in quantities
        ]
        for profile in profiles
        for alike in [profile is not first and unlike(first, profile) is None]
    ]


def value_of(profile: Profile, name: str) -> Interval | None:
    """A quantity by its name: an iteration, waiting, or a stall's share."""
    if name == "iteration":
        return iteration_seconds(profile)
    if name == "waiting":
        return profile.waiting.later
    stall = profile.stalls.get(name)
    if stall is None:
        return None
    return stall.share if stall.share is not None else stall.share_of_first_epoch


def unlike(one: Profile, other: Profile) -> str | None:
    """Why two profiles may not be subtracted, or none where they may."""
    found = first_difference(one, other, workload=SAME_WORKLOAD, machine=SAME_SOFTWARE)
    if found is None and whole_step(one) != whole_step(other):
        found = ("the fullest step", str(whole_step(one)), str(whole_step(other)))
    return None if found is None else f"{found[0]} is {found[1]} in one, {found[2]} in the other"


def first_difference(
    one: Profile, other: Profile, *, workload: Sequence[str], machine: Sequence[str]
) -> tuple[str, str, str] | None:
    """The first of these fields that differs, with both of its values as harmless text."""
    for part, fields in (("workload", workload), ("machine", machine)):
        for field in fields:
            left = getattr(getattr(one, part), field)
            right = getattr(getattr(other, part), field)
            if left != right:
                return (
                    f"{part}.{field}",
                    harmless(str(left), limit=60),
                    harmless(str(right), limit=60),
                )
    return None


def difference(one: Interval, other: Interval) -> Interval:
    """`other - one` of two independent estimates; its interval from theirs.

    The method of variance estimates recovery (Zou and Donner 2008): the distances from each
    estimate to the ends of its interval are added as squares. It needs no rounds, only intervals.
    """
    estimate = other.estimate - one.estimate
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return derived(estimate)
    below = math.hypot(other.estimate - other.low, one.high - one.estimate)
    above = math.hypot(other.high - other.estimate, one.estimate - one.low)
    return derived(estimate, estimate - below, estimate + above)


def _change(first: Interval | None, value: Interval | None, *, alike: bool) -> Change | None:
    if value is None:
        return None
    return Change(value, difference(first, value) if alike and first is not None else None)
