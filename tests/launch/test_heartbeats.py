"""What the launcher makes of heartbeat files, also of one that is just being written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from stash.engine.heartbeat import Heartbeat
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
    beat.write_text(f"1 {time.monotonic() + 100:.3f} 0.000 node")

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


def looked_at(folder: Path, *heartbeats: Heartbeat) -> Any:
    """What the launcher finds after a time-out of a twentieth of a second."""
    agent: Any = Agent(looks=8)
    plan = Plan(steps=("node",), workload="x", timeout_seconds=0.05)
    reader = RecordingReader(folder / "recording.jsonl")
    door = Doorkeeper(folder)

    def go_on(events: Any) -> None:
        for heartbeat in heartbeats:
            heartbeat.moved()
            heartbeat.look()

    try:
        return supervise._watch(agent, plan, folder, reader, go_on, lambda: None, door)
    finally:
        door.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "START_SECONDS", 0.0)
    monkeypatch.setattr(supervise, "POLL_SECONDS", 0.03)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)  # the worker is this process


@pytest.mark.usefixtures("quick")
def test_a_block_that_lasts_longer_than_the_timeout_and_goes_on_is_no_hang(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path, 0, 0.05)
    heartbeat.tell("warm")
    assert looked_at(tmp_path, heartbeat) is None


@pytest.mark.usefixtures("quick")
def test_workers_that_another_node_holds_are_not_taken_for_hanging(tmp_path: Path) -> None:
    for rank in (2, 3):
        Heartbeat(tmp_path, rank, 0.05).tell("held", held_seconds=100.0)
    assert looked_at(tmp_path) is None


@pytest.mark.usefixtures("quick")
def test_a_worker_that_hangs_while_it_holds_others_is_found_after_the_timeout(
    tmp_path: Path,
) -> None:
    Heartbeat(tmp_path, 0, 0.05).tell("solo")
    Heartbeat(tmp_path, 1, 0.05).tell("held", held_seconds=100.0)
    failure = looked_at(tmp_path)
    assert failure is not None and "(--timeout)" in failure.message
