"""Whoever watches a run may go away or be impatient; what is measured is kept."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from launch.running import temporary_files_in
from profiles import HAND_WORKED, facts, rounds_of
from stash.engine import host
from stash.engine.direct import Direct
from stash.engine.plan import RECORDING, Plan
from stash.errors import StashError
from stash.launch import api, resume
from stash.launch.api import Measured, _while_it_lasts
from stash.launch.nodes import Lead
from stash.launch.prepare import prepare
from stash.launch.request import Request
from stash.launch.supervise import Event, interrupt_on_terminate, uninterrupted
from stash.results import store
from stash.results.profile import Profile
from stash.results.recording import Recorder


@pytest.mark.parametrize("error", [BrokenPipeError(), SystemExit(1), OSError(5, "gone")])
def test_a_terminal_that_is_gone_is_told_nothing_more(error: BaseException) -> None:
    told = []

    def listen(events: Iterable[Event]) -> None:
        told.append(events)
        raise error

    guarded = _while_it_lasts(listen)
    guarded([])
    guarded([])
    assert len(told) == 1


def test_an_interrupt_is_not_swallowed() -> None:
    def listen(events: Iterable[Event]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _while_it_lasts(listen)([])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_cost_what_is_being_saved(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with uninterrupted():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_scheduler_may_end_a_run_twice() -> None:
    """Whoever has started a command passes a signal on that the command may have got already."""
    restore = interrupt_on_terminate()
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            pytest.fail("interrupted again")
    finally:
        restore()


def workers(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    for name, value in {"RANK": "0", "GROUP_RANK": "0", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("signal.signal", lambda *arguments: None)


PLAN = Plan(steps=("node",), workload="x")


def test_rounds_of_a_launch_that_was_killed_do_not_get_into_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod, torchrun always has the same process number."""
    workers(monkeypatch)
    first = Direct.prepare(PLAN, tmp_path)
    (first.run_folder / RECORDING).write_text("of yesterday")
    again = Direct.prepare(PLAN, tmp_path)
    assert again.run_folder == first.run_folder
    assert not (again.run_folder / RECORDING).exists()


def ended_with_rounds(out: Path, monkeypatch: pytest.MonkeyPatch) -> Direct:
    """The first worker of a launch of one's own, which has recorded and now fails."""
    workers(monkeypatch)
    direct = Direct.prepare(PLAN, out)
    recorder = Recorder(direct.run_folder / RECORDING)
    for event in (facts(), *rounds_of([[HAND_WORKED] * 3])):
        recorder.write(event)
    recorder.close()
    direct.end("Worker 0 failed: KeyError.", "Worker 0 failed: KeyError: s3cr3t\x1b[2J.")
    return direct


def test_a_launch_of_ones_own_tells_what_its_script_said_and_keeps_it_out_of_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended_with_rounds(tmp_path, monkeypatch)
    (path,) = tmp_path.iterdir()
    assert Profile.load(path).run.message == "Worker 0 failed: KeyError."
    told = capsys.readouterr().err
    assert "KeyError: s3cr3t\\x1b[2J." in told and "s3cr3t" not in path.read_text()


def full_disk(*details: object, **more: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def saved_without_a_gang(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """What is kept of three rounds that nobody had to run."""
    script = folder / "train.py"
    script.touch()
    prepared = prepare(Request(workload=str(script), device="cpu", nproc_per_node=2))

    def run(*details: Any) -> tuple[None, bool]:
        details[4].add([facts(), *rounds_of([[HAND_WORKED] * 3])])
        return None, False

    monkeypatch.setattr(api, "_run_launches", run)
    with temporary_files_in(folder):
        return api._measure_and_save(prepared, Lead.alone(), None, lambda events: None)


def test_logs_and_recording_stay_where_no_place_takes_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "write_whole", full_disk)
    with pytest.raises(StashError) as told:
        saved_without_a_gang(tmp_path, monkeypatch)
    (kept,) = tmp_path.glob("stash-run-*")
    assert f"`--resume {kept}` goes on with them" in told.value.message


def test_a_folder_s_name_in_a_problem_steers_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = store.Kept(tmp_path / "p.json", "No room in \x1b[2J.")
    monkeypatch.setattr(store, "keep", lambda *details: kept)
    saved_without_a_gang(tmp_path, monkeypatch)
    assert "stash: No room in \\x1b[2J.\n" in capsys.readouterr().err


def test_output_of_a_script_that_has_no_room_is_told_and_stays(tmp_path: Path) -> None:
    (problem,) = api._keep_output(tmp_path, tmp_path / "no folder" / "x.log")
    assert f"All of it is in {tmp_path}." in problem
    assert api._keep_output(tmp_path, tmp_path / "x.log") == []


def test_a_recording_stays_until_its_profile_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store, "write_whole", full_disk)
    direct = ended_with_rounds(tmp_path, monkeypatch)
    assert f"--resume {direct.run_folder}" in capsys.readouterr().err
    assert resume.load(direct.run_folder, tmp_path).run.rounds == 3


class Exited(BaseException):
    """In place of the end of the process."""


@pytest.mark.parametrize("failing", ["write", "flush"])
def test_a_worker_whose_disk_is_full_comes_to_its_end(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(code: int) -> None:
        raise Exited(code)

    stream = io.StringIO()
    monkeypatch.setattr(stream, failing, full_disk)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(host, "_end_children", lambda: None)
    monkeypatch.setattr("os._exit", leave)
    workers(monkeypatch)
    worker = host._Worker(PLAN, tmp_path, Direct(PLAN, tmp_path / "run", tmp_path, leads=False))
    with pytest.raises(Exited, match="1"):
        worker._leave(KeyError("label"))
    assert "KeyError: 'label'" in (tmp_path / "error-0.json").read_text()


def test_workers_of_one_launch_share_a_folder_and_pods_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers(monkeypatch)
    own = Direct.prepare(PLAN, tmp_path).run_folder
    (own / RECORDING).write_text("of this launch")
    workers(monkeypatch, RANK="1")
    assert Direct.prepare(PLAN, tmp_path).run_folder == own
    assert (own / RECORDING).exists()
    monkeypatch.setattr("platform.node", lambda: "another-pod")
    assert Direct.prepare(PLAN, tmp_path).run_folder != own
