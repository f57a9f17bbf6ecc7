"""Traps of the paper's released scripts that lie in the running of iterations, not in formulas.

Each is put back here, and the check that guards against it must notice.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import stash
from stash.engine.devices import Cpu
from stash.engine.feed import Feeds, Window
from stash.engine.sources import LoaderSource
from stash.results.steps import Feed

COUNT_MESSAGES = Path(__file__).with_name("count_messages.py")


def messages(trap: str) -> dict[str, Any]:
    """What one worker of the built-in loop sends per iteration, by kind of collective."""
    done = subprocess.run(
        [sys.executable, str(COUNT_MESSAGES), trap], capture_output=True, text=True, check=True
    )
    counted: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return counted


def sends_buckets_only(counted: dict[str, Any]) -> bool:
    """Gradients travel in PyTorch's few buckets, and nothing else travels at all."""
    return counted["sent"] == {"allreduce": counted["buckets"]} and counted["buckets"] <= 3


@pytest.mark.gang
def test_an_iteration_sends_its_few_buckets_and_nothing_else() -> None:
    counted = messages("none")
    assert counted["tensors"] > 20
    assert sends_buckets_only(counted)


@pytest.mark.gang
def test_one_message_per_tensor_is_noticed() -> None:
    assert not sends_buckets_only(messages("message per tensor"))


@pytest.mark.gang
def test_metrics_reduced_in_every_iteration_are_noticed() -> None:
    counted = messages("metrics")
    assert counted["sent"]["allreduce"] == counted["buckets"] + 3
    assert not sends_buckets_only(counted)


class CountingDevice(Cpu):
    """Counts copies to the device."""

    def __init__(self) -> None:
        self.copies = 0

    def resident(self, batch: Any) -> Any:
        self.copies += 1
        return batch


class CopyingFeeds(Feeds):
    """The trap: what is called resident is copied to the device in every iteration."""

    def next_batch(self) -> Any:
        return self._device.resident(super().next_batch())


@pytest.mark.parametrize(("feeds", "copies"), [(Feeds, 0), (CopyingFeeds, 12)])
def test_replay_copies_nothing_to_the_device(
    feeds: type[Feeds], copies: int, tmp_path: Path
) -> None:
    device = CountingDevice()
    loader = DataLoader(TensorDataset(torch.arange(40.0)), batch_size=4)
    source = LoaderSource(loader, DataLoader.__iter__)
    made = feeds(source, device, run_folder=tmp_path, data_folder=None)
    made.use_window(Window(1, 3, 0))
    made.switch(Feed.REPLAY)
    before = device.copies
    seen = [made.next_batch() for _ in range(12)]
    assert device.copies - before == copies
    period = [id(batch) for batch in seen[:3]]
    assert [id(batch) for batch in seen] == list(itertools.islice(itertools.cycle(period), 12))


def test_nothing_is_done_by_sudo_and_nothing_is_ended_by_name() -> None:
    folder = Path(stash.__file__).parent
    for path in folder.rglob("*.py"):
        text = path.read_text()
        for trap in ("sudo", "pkill", "killall", "drop_caches"):
            assert trap not in text, f"{path.name} uses {trap}"
