"""Where values end: the last one that is let into a document, and the first that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from profiles import HAND_WORKED, noisy, profile_of
from stash.errors import StashError
from stash.results import document
from stash.results.document import Interval, derived
from stash.results.profile import Profile

LIMITS: list[tuple[Any, list[Any], list[Any]]] = [
    (document.Text, ["", "x" * 4096], ["x" * 4097]),
    (document.Name, ["x", "x" * 512], ["", "x" * 513]),
    (document.Count, [0, 10**15], [-1, 10**15 + 1]),
    (document.Positive, [1, 10**15], [0, 10**15 + 1]),
    (document.Seconds, [0.0, 1e9], [-1e-9, 1.01e9]),
    (document.SignedSeconds, [-1e9, 1e9], [-1.01e9, 1.01e9]),
    (document.Quantity, [0.0, 1e18], [-1e-9, 1.01e18]),
    (document.Signed, [-1e18, 1e18], [-1.01e18, 1.01e18]),
]


@pytest.mark.parametrize(("kind", "inside", "outside"), LIMITS)
def test_values_end_where_they_are_said_to(
    kind: Any, inside: list[Any], outside: list[Any]
) -> None:
    adapter = TypeAdapter(kind)
    for value in inside:
        assert adapter.validate_python(value) == value
    for value in outside:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_values_are_never_converted_changed_or_made_up() -> None:
    made = Interval(estimate=1.0, low=None, high=None)
    with pytest.raises(ValidationError):
        made.estimate = 2.0  # type: ignore[misc]
    for wrong in (
        {"estimate": "1.0", "low": None, "high": None},
        {"estimate": float("nan"), "low": None, "high": None},
        {"estimate": float("inf"), "low": None, "high": None},
        {"estimate": 1.0, "low": None, "high": None, "middle": 1.0},
    ):
        with pytest.raises(ValidationError):
            Interval.model_validate(wrong)


def test_a_file_larger_than_any_profile_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(512 * 1024 * 1024 + 1)  # sparse: takes no room
    with pytest.raises(StashError, match=r"larger than any profile \(512 MiB\)"):
        Profile.load(huge)
    whole = profile_of(noisy(HAND_WORKED, rounds=2))
    path = tmp_path / "whole.json"
    path.write_text(whole.to_json())
    monkeypatch.setattr(document, "MAX_FILE_BYTES", path.stat().st_size)
    assert Profile.load(path) == whole
    monkeypatch.setattr(document, "MAX_FILE_BYTES", path.stat().st_size - 1)
    with pytest.raises(StashError, match="larger than any profile"):
        Profile.load(path)


def test_what_is_made_from_a_document_s_numbers_has_no_bounds() -> None:
    made = derived(2e20, 1e20, 3e20)
    assert (made.estimate, made.low, made.high) == (2e20, 1e20, 3e20)
