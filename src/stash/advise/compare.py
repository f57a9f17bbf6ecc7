"""`stash.compare`: profiles beside the first of them, as a document; and the paper's comparison.

The paper's network stall is between two machines with as many workers each: one that holds them
all, and several that hold a part each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from stash.errors import UsageError
from stash.results import comparison
from stash.results.comparison import (
    SAME_SOFTWARE,
    SAME_WORKLOAD,
    Change,
    Difference,
    difference,
    excludes_zero,
    first_difference,
    ratio,
    short,
    unlike,
)
from stash.results.document import Interval, Model, Name, Positive, Text, derived
from stash.results.profile import Profile, Provenance
from stash.results.steps import STALL_BY_NAME

SCHEMA = "stash.comparison/1"
NETWORK_SCHEMA = "stash.network/1"
#: Neither side reads data, so that alone may differ; a GPU of another kind may not.
SAME_FOR_NETWORK = tuple(field for field in SAME_WORKLOAD if field != "data")

Given = Profile | Path | str


class Compared(Model):
    """One quantity, and how it differs from the first profile's."""

    value: Interval
    difference: Interval | None
    significant: bool


class Which(Model):
    """Which profile a row is of."""

    id: Name
    workload: Name
    provenance: Provenance
    device: Name
    nodes: Positive
    workers: Positive
    instance: Text | None


class Row(Model):
    """One profile against the first."""

    profile: Which
    unlike: Text | None  # the field that differs, where profiles are not of the same thing
    seconds_per_iteration: Compared | None
    waiting_share: Compared | None
    stall_shares: dict[Name, Compared]


class Comparison(Model):
    """Profiles side by side; differences are to the first."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    rows: tuple[Row, ...]


class NetworkComparison(Model):
    """What the same workers cost more on several machines than on one."""

    schema_: str = Field(default=NETWORK_SCHEMA, alias="schema")
    one: Which
    many: Which
    one_step: Literal["node"] = "node"
    many_step: Literal["scaleout"] = "scaleout"
    one_seconds_per_iteration: Interval
    many_seconds_per_iteration: Interval
    stall: Literal["network"] = "network"
    seconds_per_iteration: Interval
    percent: Interval
    percent_of: Literal["node"] = "node"
    significant: bool


def compare(*given: Given, anyway: bool = False) -> Comparison:
    """Profiles side by side. Unlike ones are refused by the field that differs, or told anyway."""
    profiles = load_several(given)
    require_alike(profiles, anyway=anyway)
    stalls = [name for name in STALL_BY_NAME if any(name in one.stalls for one in profiles)]
    table = comparison.compare(profiles, ["iteration", "waiting", *stalls], anyway=anyway)
    return Comparison(
        rows=tuple(
            _row(profiles[0], profile, stalls, changes)
            for profile, changes in zip(profiles, table, strict=True)
        )
    )


def load_several(given: Sequence[Given]) -> list[Profile]:
    """Two profiles or more, from wherever they are."""
    if len(given) < 2:
        raise UsageError("Comparing takes two profiles or more; `stash show` shows one.")
    return [one if isinstance(one, Profile) else Profile.load(Path(one)) for one in given]


def require_alike(profiles: Sequence[Profile], *, anyway: bool) -> None:
    """Refuse what may not be subtracted, by the name of the field."""
    for other in profiles[1:]:
        found = unlike(profiles[0], other)
        if found is not None and not anyway:
            raise UsageError(
                f"Profiles {profiles[0].id} and {other.id} are not of the same thing: {found}. "
                "--anyway compares them all the same."
            )


def network_stall(one: Given, many: Given, *, anyway: bool = False) -> NetworkComparison:
    """The paper's network stall of several machines against one that holds as many workers."""
    single, several = load_several([one, many])
    _require_one_and_many(single, several)
    found = _unlike_for_network(single, several)
    if found is not None and not anyway:
        raise UsageError(
            f"No network stall can be told from these two: {found}. "
            "--anyway compares them all the same."
        )
    base = single.steps["node"].seconds_per_iteration
    seconds = several.steps["scaleout"].seconds_per_iteration
    stall = difference(base, seconds)
    return NetworkComparison(
        one=_which(single),
        many=_which(several),
        one_seconds_per_iteration=base,
        many_seconds_per_iteration=seconds,
        seconds_per_iteration=stall,
        percent=_percent_more(ratio(base, seconds)),
        significant=excludes_zero(stall),
    )


def _require_one_and_many(one: Profile, many: Profile) -> None:
    if one.machine.nodes != 1 or many.machine.nodes < 2:
        raise UsageError(
            f"The network stall is of several nodes against one, in this order; these are of "
            f"{one.machine.nodes} and of {many.machine.nodes}."
        )
    for profile, step in ((one, "node"), (many, "scaleout")):
        if step not in profile.steps:
            raise UsageError(
                f"Profile {profile.id} has no step {step}, which the network stall needs. "
                f"Measure it with --steps {step}."
            )


def _unlike_for_network(one: Profile, many: Profile) -> Difference | None:
    if one.machine.workers != many.machine.workers:
        return Difference("machine.workers", str(one.machine.workers), str(many.machine.workers))
    found = first_difference(
        one, many, workload=SAME_FOR_NETWORK, machine=(*SAME_SOFTWARE, "device")
    )
    if found is not None or _kinds(one) == _kinds(many):
        return found
    return Difference("machine.devices", short(_kinds(one)), short(_kinds(many)))


def _kinds(profile: Profile) -> str:
    """Of devices. A profile lists those of one node, so several nodes list fewer of them."""
    return ", ".join(sorted(set(profile.machine.devices)))


def _percent_more(times: Interval) -> Interval:
    """A ratio of times as percent above one."""
    return derived(
        100 * (times.estimate - 1),
        None if times.low is None else 100 * (times.low - 1),
        None if times.high is None else 100 * (times.high - 1),
    )


def _row(
    first: Profile, profile: Profile, stalls: Sequence[str], changes: Sequence[Change | None]
) -> Row:
    iteration, waiting, *shares = (None if one is None else _compared(one) for one in changes)
    found = None if profile is first else unlike(first, profile)
    return Row(
        profile=_which(profile),
        unlike=None if found is None else str(found),
        seconds_per_iteration=iteration,
        waiting_share=waiting,
        stall_shares={
            name: share for name, share in zip(stalls, shares, strict=True) if share is not None
        },
    )


def _compared(change: Change) -> Compared:
    return Compared(
        value=change.value, difference=change.difference, significant=change.significant
    )


def _which(profile: Profile) -> Which:
    machine = profile.machine
    return Which(
        id=profile.id,
        workload=profile.workload.name,
        provenance=profile.provenance,
        device=machine.device,
        nodes=machine.nodes,
        workers=machine.workers,
        instance=machine.instance,
    )
