"""The agent that is started before there is anything to run."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from launch.agents import output_of, task_of
from launch.running import until
from stash.errors import UsageError
from stash.launch.api import measure
from stash.launch.early import run_agent, starting_agent
from stash.launch.request import Request

SHOW = "import os; print(os.environ.get('WHERE'), os.getcwd())"


pytestmark = pytest.mark.gang


def agents() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            found += [child] if "stash.launch.agent" in child.cmdline() else []
    return found


def test_the_first_launch_takes_the_agent_that_waits_and_the_next_a_new_one(tmp_path: Path) -> None:
    environment = {**os.environ, "WHERE": "as told"}
    tasks = [task_of(tmp_path / name, SHOW, environment) for name in ("first", "second")]
    with starting_agent(os.environ):
        (waiting,) = agents()
        first = run_agent(tasks[0], tmp_path / "first.log")
        second = run_agent(tasks[1], tmp_path / "second.log")
        assert first.pid == waiting.pid != second.pid
        first.wait(100)
        second.wait(100)
    for task in tasks:
        assert output_of(task).startswith("as told")


def test_inside_another_block_its_agent_is_the_one_that_waits(tmp_path: Path) -> None:
    with starting_agent(os.environ):
        (waiting,) = agents()
        with starting_agent({}):
            assert agents() == [waiting]
        assert waiting.is_running()
        run_agent(task_of(tmp_path, SHOW), tmp_path / "log").wait(100)
        with starting_agent(os.environ):
            assert agents()[-1] != waiting


def test_an_agent_can_be_started_before_anything_large_is_imported() -> None:
    look = "import sys; import stash.cli.main, stash.launch.request, stash.launch.early; "
    look += "print([name for name in ('pydantic', 'numpy', 'torch') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_agent_waiting(
    tmp_path: Path,
) -> None:
    task = task_of(tmp_path, SHOW)
    with starting_agent(os.environ):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
        try:
            run_agent(task, tmp_path / "log").wait(100)
            assert output_of(task)
        finally:
            child.kill()
            child.join()


def test_an_agent_runs_where_we_are_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with starting_agent(os.environ):
        monkeypatch.chdir(tmp_path)
        task = task_of(tmp_path, SHOW)
        run_agent(task, tmp_path / "log").wait(100)
    assert output_of(task).endswith(f" {tmp_path}\n")


def test_what_an_agent_says_before_it_is_told_anything_is_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with starting_agent(os.environ):
        (waiting,) = agents()
        assert until(lambda: waiting.status() == psutil.STATUS_ZOMBIE, 60)
        assert run_agent(task_of(tmp_path, SHOW), tmp_path / "log").wait(100) == 1
    assert "ImportError: no torch here" in (tmp_path / "log").read_text()


def test_another_thread_has_an_agent_of_its_own(tmp_path: Path) -> None:
    task = task_of(tmp_path, SHOW)
    with starting_agent(os.environ):
        (waiting,) = agents()
        with ThreadPoolExecutor() as pool:
            other = pool.submit(run_agent, task, tmp_path / "log").result()
            other.wait(100)
            assert other.pid != waiting.pid and output_of(task)
        assert waiting.is_running()


def test_a_request_that_is_refused_leaves_no_agent(tmp_path: Path) -> None:
    before = set(Path(tempfile.gettempdir()).glob("stash-agent-*"))
    with pytest.raises(UsageError, match="not-a-model"):
        measure(Request(workload="not-a-model", device="cpu", nproc_per_node=1, out=tmp_path))
    assert not agents()
    assert set(Path(tempfile.gettempdir()).glob("stash-agent-*")) <= before


def test_an_agent_that_nobody_needs_ends_with_the_block() -> None:
    with pytest.raises(KeyboardInterrupt), starting_agent(os.environ):
        (waiting,) = agents()
        raise KeyboardInterrupt
    assert not waiting.is_running() and not agents()


def test_an_agent_ends_where_nobody_can_tell_it_anything_any_more(tmp_path: Path) -> None:
    with starting_agent(os.environ):
        (waiting,) = agents()
        with pytest.raises(OSError, match="nowhere"):
            run_agent(task_of(tmp_path, SHOW), tmp_path / "nowhere" / "log")
        assert not waiting.is_running()


def test_an_agent_that_was_killed_while_it_waited_is_seen_to_be_dead(tmp_path: Path) -> None:
    with starting_agent(os.environ):
        (waiting,) = agents()
        waiting.kill()
        assert until(lambda: waiting.status() == psutil.STATUS_ZOMBIE, 60)
        assert run_agent(task_of(tmp_path, SHOW), tmp_path / "log").wait(10) < 0
