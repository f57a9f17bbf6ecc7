"""Workers that fail, hang or are killed, and users who change their mind: what is saved, what is
said, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from launch.running import (
    TINY,
    Running,
    assert_no_orphans,
    heartbeat_pid,
    processes_of,
    start_stash,
    temporary_files_in,
    until,
)
from stash.cli.main import main
from stash.launch.api import Measured, measure
from stash.launch.request import Request
from stash.launch.supervise import Event
from stash.results import store
from stash.results.profile import Profile
from stash.results.recording import Round
from workloads_for_tests.tiny import write_pictures

pytestmark = pytest.mark.gang


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data"), 24)


@pytest.fixture
def folder(pictures: Path) -> Iterator[Path]:
    """Everything of one run; a short name, because sockets are made below it."""
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        for picture in pictures.iterdir():
            os.link(picture, folder / "data" / picture.name)
        yield folder


@dataclass
class Watch:
    """Does something to a run once its first round is complete."""

    act: Callable[[], None]
    rounds: int = 0
    done: bool = False

    def __call__(self, events: Iterable[Event]) -> None:
        self.rounds += sum(isinstance(event, Round) for event in events)
        if self.rounds and not self.done:
            self.done = True
            self.act()


def measure_until(folder: Path, act: Callable[[], None], **options: object) -> Measured:
    request = Request(
        workload=f"{TINY}:faulty",
        nproc_per_node=2,
        data=folder / "data",
        steps=("node", "warm"),
        half_width=1e-9,
        out=folder / "out",
        **{"num_workers": 1, **options},  # type: ignore[arg-type]
    )
    watch = Watch(act)
    with temporary_files_in(folder):
        measured = measure(request, watch)
    assert watch.done
    assert measured.profile.run.rounds >= watch.rounds >= 1
    return measured


def start_endless(folder: Path, *more: object) -> Running:
    return start_stash(
        folder,
        *("profile", f"{TINY}:faulty", "--nproc-per-node", 2, "--data", folder / "data"),
        *("--steps", "node,warm", "--half-width", "0.0000001%", "--out", folder / "out", *more),
    )


def saved(folder: Path) -> Profile:
    ((_, profile),) = store.entries(folder / "out")
    assert isinstance(profile, Profile)
    return profile


def assert_failed_but_saved(measured: Measured, folder: Path) -> str:
    assert measured.exit_code == 1
    kept = saved(folder)
    assert kept.id == measured.profile.id and kept.run.rounds >= 1
    assert kept.run.stopped_because == "failed"
    assert set(kept.steps) == {"node", "warm"}
    assert_no_orphans(folder)
    return kept.run.message


def test_a_worker_that_raises_is_named_with_its_last_lines_and_its_rounds_are_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = measure_until(folder, (folder / "data" / "raise").touch)
    message = assert_failed_but_saved(measured, folder)
    assert message.startswith("Worker 1 failed: ValueError at ")
    said = measured.last_words or ""
    assert "is spoilt" in said and "Its last lines:" in said and "tiny.py" in said
    assert "is spoilt" not in saved(folder).to_json()  # a script may say secrets
    logs = Path(message.splitlines()[-1].removeprefix("All logs: "))
    assert (logs / "error-1.json").exists()
    assert main(["show", "--folder", str(folder / "out")]) == 0
    assert "Worker 1 failed: ValueError" in " ".join(capsys.readouterr().out.split())


def test_a_worker_that_hangs_is_named_with_where_it_hangs(folder: Path) -> None:
    """The other one waits for its gradients, in PyTorch's own code, and is not to blame."""
    measured = measure_until(
        folder, (folder / "data" / "hang").touch, timeout_seconds=8.0, num_workers=0
    )
    message = assert_failed_but_saved(measured, folder)
    assert "(--timeout)" in message
    assert "Worker 1 hangs in `warm`" in message
    assert "tiny.py" in message and "__getitem__" in message


def test_a_worker_killed_from_outside_is_told_with_the_likely_cause(folder: Path) -> None:
    def kill() -> None:
        os.kill(heartbeat_pid(folder, 1), signal.SIGKILL)

    message = assert_failed_but_saved(measure_until(folder, kill), folder)
    assert message.startswith("Worker 1 was ended by signal 9 (SIGKILL)")
    assert "memory" in message and "--batch-size" in message


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_its_rounds(folder: Path, number: signal.Signals) -> None:
    running = start_endless(folder)
    running.wait_for("1 round")
    running.signal(number)
    assert running.wait(30) == 3, running.errors
    profile = saved(folder)
    assert profile.run.stopped_because == "interrupted" and profile.run.rounds >= 1
    assert profile.id in running.output and "Profile written to" in running.output
    assert_no_orphans(folder)
    assert not list(folder.glob("stash-run-*"))


def test_an_interrupt_while_preparing_ends_the_agent_that_was_started_meanwhile(
    folder: Path,
) -> None:
    running = start_endless(folder)
    assert until(lambda: bool(processes_of(folder)), 30)
    assert not list(folder.glob("stash-run-*/launch-0"))  # there is no launch yet
    running.signal(signal.SIGINT)
    assert running.wait(30) == 3
    assert "Interrupted" in running.errors and "Traceback" not in running.errors
    assert_no_orphans(folder)
    assert not list(folder.glob("stash-*"))


def test_an_interrupt_before_the_first_round_says_that_nothing_was_measured(folder: Path) -> None:
    running = start_endless(folder)
    assert until(lambda: bool(list(folder.glob("stash-run-*/launch-0/agent.log"))), 60)
    running.signal(signal.SIGINT)
    assert running.wait(30) == 3
    assert "nothing was measured" in running.errors
    assert "Traceback" not in running.errors
    assert not list((folder / "out").glob("*.json"))
    assert_no_orphans(folder)


def test_no_worker_outlives_a_launcher_that_is_killed(folder: Path) -> None:
    running = start_endless(folder, "--num-workers", 2)
    running.wait_for("1 round")
    family = processes_of(folder)
    assert len(family) >= 3 + 2 * 2  # the agent, two workers, two loader workers each
    running.signal(signal.SIGKILL)
    assert running.wait(30) == -signal.SIGKILL
    gone, alive = psutil.wait_procs(family, timeout=15)
    assert not alive and len(gone) == len(family)
    assert_no_orphans(folder)
