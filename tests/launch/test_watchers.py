"""Whoever watches a run may go away or be impatient; what is measured is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from stash.engine.direct import Direct
from stash.engine.plan import RECORDING, Plan
from stash.launch.api import _while_it_lasts
from stash.launch.supervise import Event, interrupt_on_terminate, uninterrupted


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
