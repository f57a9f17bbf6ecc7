"""How a profile tells of its own making."""

from __future__ import annotations

import pytest

from profiles import HAND_WORKED, profile_of
from stash.report.method import how_it_was_measured


@pytest.mark.parametrize(
    ("rounds", "center"), [(4, "the median over"), (5, "the 20 % trimmed mean over")]
)
def test_few_rounds_are_told_by_their_median(rounds: int, center: str) -> None:
    told = " ".join(how_it_was_measured(profile_of([HAND_WORKED] * rounds)))
    assert f"{rounds} rounds were measured" in told
    assert f"Its estimate is {center} rounds" in told
