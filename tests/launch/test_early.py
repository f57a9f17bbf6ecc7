"""The agent that is started before there is anything to run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from stash.launch.early import run_agent, starting_agent

SHOW = ("--standalone", "--nproc-per-node", "1", "--no-python", "env")


def agents() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if "stash.launch.agent" in " ".join(child.cmdline())
    ]


def test_the_first_launch_takes_the_agent_that_waits_and_the_next_a_new_one(tmp_path: Path) -> None:
    environment = {**os.environ, "WHERE": "as told"}
    with starting_agent():
        (waiting,) = agents()
        first = run_agent(SHOW, environment, tmp_path / "first.log")
        second = run_agent(("--help",), environment, tmp_path / "second.log")
        assert first.pid == waiting.pid != second.pid
        assert (first.wait(60), second.wait(60)) == (0, 0)
    assert "WHERE=as told" in (tmp_path / "first.log").read_text().splitlines()
    assert "--nproc-per-node" in (tmp_path / "second.log").read_text()


def test_what_was_taken_away_from_the_environment_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PET_NPROC_PER_NODE", "4")
    told = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    assert run_agent(SHOW, told, tmp_path / "log").wait(60) == 0
    assert "PET_NPROC_PER_NODE" not in (tmp_path / "log").read_text()


def test_an_agent_that_nobody_needs_ends_with_the_block() -> None:
    with pytest.raises(KeyboardInterrupt), starting_agent():
        (waiting,) = agents()
        raise KeyboardInterrupt
    assert not waiting.is_running() and not agents()


def test_an_agent_ends_where_nobody_can_tell_it_anything_any_more(tmp_path: Path) -> None:
    with starting_agent():
        (waiting,) = agents()
        with pytest.raises(OSError, match="nowhere"):
            run_agent(SHOW, os.environ, tmp_path / "nowhere" / "log")
        assert not waiting.is_running()


def test_an_agent_that_was_killed_while_it_waited_is_seen_to_be_dead(tmp_path: Path) -> None:
    with starting_agent():
        (waiting,) = agents()
        waiting.kill()
        while waiting.is_running() and waiting.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert run_agent(SHOW, os.environ, tmp_path / "log").wait(10) < 0
