"""A worker's signs of life: what is written, and what costs nothing."""

from __future__ import annotations

import os
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from engine.test_switchboard import Board
from stash.engine.devices import Cpu
from stash.engine.feed import Feeds, Window
from stash.engine.heartbeat import Heartbeat
from stash.engine.recorder import WorkerRecorder
from stash.engine.sources import LoaderSource
from stash.errors import StashError
from stash.results.recording import Phase


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heartbeat(tmp_path: Path, clock: Clock) -> Heartbeat:
    return Heartbeat(tmp_path, 3, 100.0, clock)


def told(folder: Path) -> list[str]:
    pid, *rest = (folder / "heartbeat-3").read_text().split()
    assert int(pid) == os.getpid()
    return rest


def test_it_tells_when_it_moved_for_how_long_it_is_held_and_what_it_is_at(
    heartbeat: Heartbeat, tmp_path: Path
) -> None:
    heartbeat.tell("held", 600.0)
    assert told(tmp_path) == ["1000.000", "600.000", "held"]
    heartbeat.tell("no")  # shorter than what was there
    assert told(tmp_path) == ["1000.000", "0.000", "no"]


def test_the_same_is_written_once_a_second(
    heartbeat: Heartbeat, clock: Clock, tmp_path: Path
) -> None:
    heartbeat.tell("warm")
    clock.now += 0.9
    heartbeat.tell("warm")
    assert told(tmp_path)[0] == "1000.000"
    clock.now += 0.1
    heartbeat.tell("warm")
    assert told(tmp_path)[0] == "1001.000"


def test_moving_on_is_written_by_the_thread_alone_and_only_in_long_blocks(
    heartbeat: Heartbeat, clock: Clock, tmp_path: Path
) -> None:
    heartbeat.tell("warm")
    assert heartbeat.until_next_look() == 50.0
    clock.now += 49.0
    heartbeat.moved()
    assert heartbeat.look() == 0.0 and told(tmp_path)[0] == "1000.000"
    clock.now += 1.0
    assert heartbeat.look() == 1.0 and told(tmp_path)[0] == "1049.000"


def test_a_worker_that_does_not_move_on_is_not_said_to(
    heartbeat: Heartbeat, clock: Clock, tmp_path: Path
) -> None:
    heartbeat.tell("warm")
    clock.now += 90.0
    assert heartbeat.look() == 90.0 and told(tmp_path)[0] == "1000.000"
    assert heartbeat.until_next_look() == 1.0  # from now on it is looked at often


def test_what_others_hold_it_for_is_no_silence_of_its_own(
    heartbeat: Heartbeat, clock: Clock
) -> None:
    heartbeat.tell("held", 60.0)
    clock.now += 90.0
    assert heartbeat.look() == 30.0


def test_every_iteration_is_noted_and_every_batch_of_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(tmp_path)
    noted: list[None] = []
    monkeypatch.setattr(board._heartbeat, "moved", lambda: noted.append(None))
    board._loop = SimpleNamespace(optimizer=None)  # type: ignore[assignment]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    super(Board, board).iteration_ended(optimizer)
    assert len(noted) == 1
    board.batch_taken(object())
    assert len(noted) == 2
    board.close()


def test_every_batch_that_is_loaded_between_iterations_is_noted(tmp_path: Path) -> None:
    noted: list[None] = []
    source = LoaderSource(
        DataLoader(TensorDataset(torch.arange(40)), batch_size=4), DataLoader.__iter__
    )
    feeds = Feeds(
        source, Cpu(), run_folder=tmp_path, data_folder=None, moved=lambda: noted.append(None)
    )
    feeds.use_window(Window(1, 3, 2))
    assert len(noted) == 6  # recorded
    feeds.seconds_to_prepare()
    assert len(noted) == 12
    feeds.open()
    assert feeds.drain() == 6
    assert len(noted) == 18
    feeds.close()


def test_a_worker_that_nobody_watches_tells_of_its_own_hang(tmp_path: Path) -> None:
    heartbeat, found = Heartbeat(tmp_path, 0, 0.05), Queue[tuple[float, str]]()
    heartbeat.tell("warm")
    heartbeat.watch(lambda silent, doing: found.put((silent, doing)))
    silent, doing = found.get(timeout=10)
    assert silent > 0.05 and doing == "warm"


def test_the_first_worker_tells_first_because_it_keeps_the_rounds(tmp_path: Path) -> None:
    found = Queue[int]()
    for rank in (1, 0):
        heartbeat = Heartbeat(tmp_path, rank, 0.05)
        heartbeat.watch(lambda silent, doing, rank=rank: found.put(rank))  # type: ignore[misc]
    assert found.get(timeout=10) == 0 and found.empty()


def test_a_full_disk_costs_a_worker_nothing_but_its_heartbeat(tmp_path: Path) -> None:
    (tmp_path / "heartbeat-3").symlink_to("/dev/full")
    Heartbeat(tmp_path, 3, 100.0).tell("warm")
    Heartbeat(tmp_path / "gone", 3, 100.0).tell("warm")


def test_a_recording_on_a_full_disk_fails_in_words_for_the_user() -> None:
    recorder = WorkerRecorder(Path("/dev/full"))
    with pytest.raises(StashError, match=r"record .* No space left on device.* TMPDIR"):
        recorder.write(Phase(launch=0, name="measuring"))


def test_a_recording_that_cannot_begin_fails_in_words_for_the_user(tmp_path: Path) -> None:
    with pytest.raises(StashError, match="No such file"):
        WorkerRecorder(tmp_path / "gone" / "recording.jsonl")
