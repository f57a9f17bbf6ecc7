"""What a whole iteration of a profile is: one step, or several nodes' step with a node's data."""

from __future__ import annotations

from stash.results.document import Interval
from stash.results.profile import Profile
from stash.results.steps import Terms, fullest_step, whole_iteration


def whole_step(profile: Profile) -> str | None:
    """The measured step that is nearest to a whole iteration of a later epoch."""
    try:
        return fullest_step(set(profile.steps))
    except StopIteration:  # a document whose steps are all unknown here
        return None


def has_data(profile: Profile) -> bool:
    """Whether iterations of later epochs are known with the wait for their data."""
    whole = whole_terms(profile, first=False)
    return whole is not None and (+1, "warm") in whole


def iteration_seconds(profile: Profile, *, first: bool = False) -> Interval | None:
    """A whole iteration of a later epoch or of the first, as far as it is known."""
    terms = whole_terms(profile, first=first)
    if terms is None:
        return None
    if len(terms) == 1:
        return profile.steps[terms[0][1]].seconds_per_iteration
    known = profile.iteration
    return None if known is None else (known.first if first else known.later)


def whole_terms(profile: Profile, *, first: bool) -> Terms | None:
    """The steps that make up a whole iteration."""
    if whole_step(profile) is None:
        return None
    data = "cold" if first else "warm"
    return whole_iteration(set(profile.steps), data, nodes=profile.machine.nodes)
