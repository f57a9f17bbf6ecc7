"""What is easily overlooked: files that end, messages that are cut, launches of which one fails."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats

from profiles import HAND_WORKED, facts, profile_of
from stash.errors import StashError
from stash.results import statistics
from stash.results.profile import Profile
from stash.results.recording import Recorder


def test_a_recording_that_is_closed_takes_nothing_more(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl")
    recorder.write(facts())
    recorder.close()
    with pytest.raises(ValueError, match="closed"):
        recorder.write(facts())


def test_a_file_that_cannot_be_read_is_told_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(StashError, match="No such file or directory"):
        Profile.load(tmp_path / "nothing.json")
    with pytest.raises(StashError, match="Is a directory"):
        Profile.load(tmp_path)


def test_a_long_failure_is_cut_to_what_a_document_holds() -> None:
    assert profile_of([HAND_WORKED], failure="x" * 5000).run.message == "x" * 4000


def test_a_prediction_from_several_launches_adds_the_scatter_between_them() -> None:
    # Means 2 and 6: variance between 8, standard error 2; within each launch variance 1.
    half = statistics.prediction_half_width(
        [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], iterations_per_block=2, iterations=10
    )
    assert half == pytest.approx(float(stats.t.ppf(0.975, 1)) * math.sqrt(4 + 8 + 1 * 2 / 10))
    # Means 1, 2 and 6: variance between 7; rounds that do not differ scatter nothing.
    half = statistics.prediction_half_width(
        [[1.0, 1.0], [2.0, 2.0], [6.0, 6.0]], iterations_per_block=2, iterations=10
    )
    assert half == pytest.approx(float(stats.t.ppf(0.975, 2)) * math.sqrt(7 / 3 + 7))
    # One round a launch tells nothing of the scatter within.
    half = statistics.prediction_half_width([[1.0], [3.0]], iterations_per_block=2, iterations=10)
    assert half == pytest.approx(float(stats.t.ppf(0.975, 1)) * math.sqrt(1 + 2))
