"""Two profiles against each other: what differs, how surely, and when they may not be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stash.results.document import Interval, derived
from stash.results.profile import Profile
from stash.results.whole import iteration_seconds, whole_step

#: What must be the same for one profile to be subtracted from another.
SAME_WORKLOAD = ("name", "parameters", "batch_per_worker", "dtype", "optimizer", "data")
SAME_SOFTWARE = ("torch",)
#: Values are told this far.
MAX_VALUE_LENGTH = 60


@dataclass(frozen=True)
class Difference:
    """A field that two profiles do not agree on."""

    field: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.field} is {self.one} in one, {self.other} in the other"


@dataclass(frozen=True)
class Change:
    """One quantity of a profile, and its difference to the same of the first profile."""

    value: Interval
    difference: Interval | None  # none for the first profile and where they may not be subtracted

    @property
    def significant(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        return self.difference is not None and excludes_zero(self.difference)


def compare(
    profiles: Sequence[Profile], quantities: Sequence[str], *, anyway: bool = False
) -> list[list[Change | None]]:
    """A row a profile: each quantity with its difference to the first profile's.

    Unlike profiles are not subtracted, unless they are to be `anyway`.
    """
    first = profiles[0]
    return [
        [_change(value_of(first, one), value_of(profile, one), alike=alike) for one in quantities]
        for profile in profiles
        for alike in [profile is not first and (anyway or unlike(first, profile) is None)]
    ]


def value_of(profile: Profile, name: str) -> Interval | None:
    """A quantity by its name: an iteration in seconds, waiting, or a stall's share."""
    if name == "iteration":
        return iteration_seconds(profile)
    if name == "waiting":
        return profile.waiting.later
    stall = profile.stalls.get(name)
    if stall is None:
        return None
    return stall.share if stall.share is not None else stall.share_of_first_epoch


def unlike(one: Profile, other: Profile) -> Difference | None:
    """Why two profiles may not be subtracted, or none where they may."""
    found = first_difference(one, other, workload=SAME_WORKLOAD, machine=SAME_SOFTWARE)
    if found is None and whole_step(one) != whole_step(other):
        return Difference("the fullest step", str(whole_step(one)), str(whole_step(other)))
    return found


def first_difference(
    one: Profile, other: Profile, *, workload: Sequence[str], machine: Sequence[str]
) -> Difference | None:
    """The first of these fields that differs."""
    for part, fields in (("workload", workload), ("machine", machine)):
        for field in fields:
            left = getattr(getattr(one, part), field)
            right = getattr(getattr(other, part), field)
            if left != right:
                return Difference(f"{part}.{field}", short(left), short(right))
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


def ratio(one: Interval, other: Interval) -> Interval:
    """`other / one` of two independent, positive estimates, by the same method.

    A ratio r is inside when `other - r * one` may be zero: the two ends are where the interval of
    that difference touches zero (Donner and Zou 2012). None where that is nowhere.
    """
    estimate = other.estimate / one.estimate
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return derived(estimate)
    low = _end(estimate, other.estimate - other.low, one.estimate, one.high - one.estimate, -1)
    high = _end(estimate, other.high - other.estimate, one.estimate, one.estimate - one.low, +1)
    if low is None or high is None:
        return derived(estimate)
    return derived(estimate, low, high)


def excludes_zero(value: Interval) -> bool:
    """Whether an interval lies on one side of zero."""
    if value.low is None or value.high is None:
        return False
    return not value.low <= 0 <= value.high


def short(value: object) -> str:
    """A value as it is told: names, paths and lists may be long."""
    text = str(value)
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 3] + "..."


def _end(estimate: float, above: float, base: float, below: float, side: int) -> float | None:
    """Where `(base * (r - estimate))^2 = above^2 + (r * below)^2`, on one side of the estimate."""
    leading = base**2 - below**2
    if leading <= 0:  # the base may be zero: the ratio is not bounded
        return None
    middle = estimate * base**2
    inside = middle**2 - leading * (middle * estimate - above**2)
    return (middle + side * math.sqrt(inside)) / leading


def _change(first: Interval | None, value: Interval | None, *, alike: bool) -> Change | None:
    if value is None:
        return None
    return Change(value, difference(first, value) if alike and first is not None else None)
