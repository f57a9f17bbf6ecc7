"""Pauses for the launcher: both sides of real pipes."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

import pytest

from stash.engine import intermission
from stash.engine.intermission import Doorkeeper, Intermission


def test_a_worker_waits_until_the_launcher_is_done(tmp_path: Path) -> None:
    doorkeeper = Doorkeeper(tmp_path)
    order: list[str] = []

    def work() -> None:
        Intermission(tmp_path).take()
        order.append("worker goes on")

    worker = threading.Thread(target=work)
    worker.start()
    assert doorkeeper.wait(5.0)
    time.sleep(0.05)
    order.append("launcher has drawn")
    doorkeeper.answer()
    worker.join(5.0)
    assert order == ["launcher has drawn", "worker goes on"]
    assert not doorkeeper.wait(0.0), "one knock, one pause"
    doorkeeper.close()


def test_an_end_is_heard_at_once_and_is_no_pause(tmp_path: Path) -> None:
    doorkeeper = Doorkeeper(tmp_path)
    reading, writing = os.pipe()
    os.close(writing)  # as when a process has ended
    began = time.monotonic()
    assert not doorkeeper.wait(60.0, reading)
    assert time.monotonic() - began < 30.0
    os.close(reading)
    doorkeeper.close()


def test_a_knock_before_the_end_is_a_pause(tmp_path: Path) -> None:
    doorkeeper = Doorkeeper(tmp_path)
    reading, writing = os.pipe()
    with Intermission(tmp_path)._pipes() as (knock, _):
        os.write(knock, b".")
        os.close(writing)
        assert doorkeeper.wait(60.0, reading)
    os.close(reading)
    doorkeeper.close()


def test_without_a_launcher_there_is_no_pause(tmp_path: Path) -> None:
    Intermission(tmp_path).take()
    doorkeeper = Doorkeeper(tmp_path)
    doorkeeper.close()
    began = time.monotonic()
    Intermission(tmp_path).take()
    assert time.monotonic() - began < intermission.PATIENCE_SECONDS


def test_a_launcher_that_does_not_answer_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intermission, "PATIENCE_SECONDS", 0.01)
    now = 0.0
    doorkeeper = Doorkeeper(tmp_path)
    worker = Intermission(tmp_path, clock=lambda: now)
    worker.take()
    assert doorkeeper.wait(0.0)
    worker.take()
    assert not doorkeeper.wait(0.0)
    now += 2 * intermission.DEAF_SECONDS
    worker.take()
    assert doorkeeper.wait(0.0)
    doorkeeper.close()


def test_an_answer_that_came_too_late_is_not_taken_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intermission, "PATIENCE_SECONDS", 0.05)
    doorkeeper = Doorkeeper(tmp_path)
    now = 0.0
    worker = Intermission(tmp_path, clock=lambda: now)
    with worker._pipes():  # keeps the late answer in the pipe
        worker.take()
        doorkeeper.answer()
        now += 2 * intermission.DEAF_SECONDS
        began = time.monotonic()
        worker.take()
        assert time.monotonic() - began >= 0.04
    doorkeeper.close()


def test_a_worker_with_very_many_open_files_knocks_as_well(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip(f"only {hard} files may be open at once here: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    doorkeeper = Doorkeeper(tmp_path)
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1050)]
    try:
        worker = threading.Thread(target=Intermission(tmp_path).take)
        worker.start()
        assert doorkeeper.wait(5.0)
        doorkeeper.answer()
        worker.join(5.0)
        assert not worker.is_alive()
    finally:
        for one in held:
            os.close(one)
        doorkeeper.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_where_nobody_can_knock_every_moment_has_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise OSError("no named pipes here")

    monkeypatch.setattr(intermission.os, "mkfifo", refuse)
    assert Doorkeeper(tmp_path).wait(0.0)
