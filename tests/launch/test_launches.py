"""Several launches of one run, without workers: what is kept where one cannot be started."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from profiles import HAND_WORKED, facts, rounds_of
from stash.errors import StashError, UsageError
from stash.launch import api
from stash.launch.api import measure
from stash.launch.request import Request
from stash.results.profile import Profile

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/secret-place")


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, *, fails_at: int
) -> api.Measured:
    """Four launches of three rounds each; one of them raises."""

    def run_gang(prepared: Any, plan: Any, folder: Any, on_events: Any, *rest: Any) -> None:
        if plan.launch == fails_at:
            raise error
        rounds = rounds_of([[HAND_WORKED] * 3])
        on_events([facts(), *(one.model_copy(update={"launch": plan.launch}) for one in rounds)])

    monkeypatch.setattr(api, "_run_gang", run_gang)
    return measure(
        Request(workload="tinycnn", nproc_per_node=1, device="cpu", launches=4, out=folder)
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FULL, "Launch 2 could not be run: No space left on device."),
        (RuntimeError("token=abc"), "Launch 2 could not be run: RuntimeError."),
        (StashError("The name node-0 is not known."), "The name node-0 is not known."),
        (UsageError("The name node-0 is not known."), "The name node-0 is not known."),
    ],
)
def test_rounds_of_earlier_launches_are_kept_where_one_cannot_be_started(
    error: Exception, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = run(tmp_path, monkeypatch, error, fails_at=1)
    assert measured.exit_code == 1
    (path,) = tmp_path.glob("*.json")
    kept = Profile.load(path)
    assert (kept.run.rounds, kept.run.stopped_because) == (3, "failed")
    assert words in kept.run.message
    assert "secret" not in kept.to_json() and "token" not in kept.to_json()


def test_what_was_said_is_shown_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = run(tmp_path, monkeypatch, RuntimeError("token=abc"), fails_at=1)
    assert "token=abc" in (measured.last_words or "")


def test_a_run_that_cannot_be_started_at_all_fails_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path, monkeypatch, FULL, fails_at=0)
    assert not list(tmp_path.glob("*.json"))
