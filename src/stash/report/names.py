"""Short names of profiles that are shown together."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from stash.report.characters import harmless
from stash.results.profile import Profile

NAME_LIMIT = 80


def names_of(profiles: Sequence[Profile]) -> list[str]:
    """Of one profile its workload; of several, a letter or a number before it."""
    shown = [harmless(profile.workload.name, limit=NAME_LIMIT) for profile in profiles]
    if len(profiles) == 1:
        return shown
    few = len(profiles) <= len(ascii_uppercase)
    marks = ascii_uppercase if few else [str(number + 1) for number in range(len(profiles))]
    return [f"{mark} {name}" for mark, name in zip(marks, shown, strict=False)]
