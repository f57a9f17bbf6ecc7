"""What the launcher makes of heartbeat files, also of one that is just being written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from stash.engine.intermission import Doorkeeper
from stash.engine.plan import Plan
from stash.launch import supervise
from stash.results.recording import RecordingReader


class Agent:
    """Runs for so many looks, then ends well."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def poll(self) -> int | None:
        self._looks -= 1
        return None if self._looks else 0


def test_a_heartbeat_that_is_just_being_written_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "START_SECONDS", 0.0)
    monkeypatch.setattr(supervise, "POLL_SECONDS", 0.02)
    beat = tmp_path / "heartbeat-1"
    beat.write_text(f"1 {time.monotonic() + 100:.3f} node")

    def empty(events: Any) -> None:
        if looks.pop() == "second":
            beat.write_text("")

    looks = ["later"] * 20 + ["second", "first"]
    agent: Any = Agent(looks=20)
    plan = Plan(steps=("node",), workload="x", timeout_seconds=0.05)
    reader = RecordingReader(tmp_path / "recording.jsonl")
    door = Doorkeeper(tmp_path)
    failure = supervise._watch(agent, plan, tmp_path, reader, empty, lambda: None, door)
    door.close()
    assert failure is None
