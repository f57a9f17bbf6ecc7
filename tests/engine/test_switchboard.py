"""The switches themselves: what a step asks for is what the training loop gets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from engine.worlds import plan_of
from launch.running import start
from stash.engine import seams
from stash.engine.feed import Feeds, Window
from stash.engine.gang import Alone, DistributedGang
from stash.engine.sources import LoaderSource
from stash.engine.switchboard import Switchboard
from stash.errors import StashError
from stash.results.steps import STEPS, Feed

#: The method's table once more, by hand: step, feed, whether gradients are exchanged.
SWITCHES = {
    "solo": (Feed.REPLAY, False),
    "unsynced": (Feed.REPLAY, False),
    "node": (Feed.REPLAY, True),
    "staged": (Feed.STAGED, True),
    "warm": (Feed.WARM, True),
    "cold": (Feed.COLD, True),
    "cluster": (Feed.REPLAY, True),
    "spread": (Feed.REPLAY, False),
    "scaleout": (Feed.REPLAY, True),
    "again": (Feed.REPLAY, True),
}


class Turned:
    """A group that keeps how it was turned."""

    on: bool | None = None

    def turn(self, on: bool, among: tuple[int, ...]) -> None:
        self.on, self.among = on, among


class Board(Switchboard):
    """A switchboard in the middle of a measurement, over groups that only remember the switch."""

    def __init__(self, folder: Path) -> None:
        super().__init__(plan_of("node"), folder, DataLoader.__iter__)
        loader = DataLoader(TensorDataset(torch.arange(40)), batch_size=4)
        source = LoaderSource(loader, DataLoader.__iter__)
        self.feeds = self._feeds = Feeds(source, self._device, run_folder=folder, data_folder=None)
        self.feeds.use_window(Window(1, 3, 0))
        self._story = itertools.repeat(None)
        self._gang = Alone()
        self.groups: list[Any] = [Turned(), Turned()]
        for group in self.groups:
            self.group_made(group)

    def iteration_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """No training loop runs here."""


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    made = Board(tmp_path)
    yield made
    made.close()


def test_every_step_turns_feed_and_exchange_to_what_the_method_says(board: Board) -> None:
    assert [step.name for step in STEPS] == list(SWITCHES)
    for step in STEPS:
        board.set(step)
        feed, exchange = SWITCHES[step.name]
        assert (board.feeds._feed, [group.on for group in board.groups]) == (feed, [exchange] * 2)


@pytest.mark.parametrize(("shown", "number"), [("cuda:3", 3), ("cuda", 0)])
def test_a_worker_watches_the_gpu_on_which_its_script_trains(
    board: Board, shown: str, number: int
) -> None:
    """Its number need not be the worker's: some launchers show each worker only its own GPU."""
    board._follow_device(loop_on(shown))
    assert (board._plan.device, board._device.index) == ("cuda", number)


def test_a_device_that_cannot_be_waited_for_is_refused(board: Board) -> None:
    with pytest.raises(StashError, match="trains on 'mps'"):
        board._follow_device(loop_on("mps"))


def loop_on(device: str) -> Any:
    weight = SimpleNamespace(device=torch.device(device))
    return SimpleNamespace(optimizer=SimpleNamespace(param_groups=[{"params": [weight]}]))


def test_catching_up_replays_alone(board: Board) -> None:
    board.set(next(step for step in STEPS if step.name == "cold"))
    board.idle()
    assert board.feeds._feed is Feed.REPLAY
    assert [group.on for group in board.groups] == [False, False]


def test_an_optimizer_steps_with_a_rate_of_zero_and_gets_its_own_back(board: Board) -> None:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 0.5}, {"params": weights[1:]}], 0.1)
    for weight in weights:
        weight.grad = torch.ones(2)
    board.step_begins(optimizer)
    optimizer.step()
    assert all(torch.equal(weight, torch.ones(2)) for weight in weights)
    board.step_ended(optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.1]


def _meet(folder: Path) -> None:
    """A gang of one meets while exchange is off; what reaches the measured group is counted."""
    sent: list[str] = []

    class Counted:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            sent.append(name)
            return getattr(self._inner, name)

    class Counting(Switchboard):
        def group_made(self, group: Any) -> None:
            group._inner = Counted(group._inner)

    seams.install(Counting(plan_of("node"), folder, DataLoader.__iter__))
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
    by_script = len(sent)
    gang = DistributedGang()
    gang.barrier()
    found = {"gathered": gang.gather([1.5]), "followed": gang.follow(3)}
    found["by the script"], found["by the gang"] = by_script, len(sent) - by_script
    (folder / "found").write_text(json.dumps(found))


@pytest.mark.gang
def test_workers_meet_on_a_group_of_their_own(tmp_path: Path) -> None:
    running = start(_meet, tmp_path, folder=tmp_path)
    assert running.wait(60) == 0, running.errors
    found = json.loads((tmp_path / "found").read_text())
    assert found.pop("by the script") > 0
    assert found == {"gathered": [[1.5]], "followed": 3, "by the gang": 0}
