"""The twin of a script's loader: the same in everything but the samples that it visits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from stash.engine.devices import Cpu
from stash.engine.feed import Feeds, Window
from stash.engine.sources import LoaderSource

SAME = ("dataset", "num_workers", "prefetch_factor", "pin_memory", "timeout", "collate_fn")
SAME_WHERE_THERE = ("in_order", "pin_memory_device")  # not in every release of torch


def collate(samples: list[Any]) -> Any:
    return torch.stack([value for (value,) in samples])


def init(worker: int) -> None:
    """The script's own, run in each loader worker."""


def twin_of(loader: DataLoader[Any], folder: Path) -> DataLoader[Any]:
    """The loader that warm and cold blocks read."""
    source = LoaderSource(loader, DataLoader.__iter__)
    feeds = Feeds(source, Cpu(), run_folder=folder, data_folder=None)
    feeds.use_window(Window(1, 2, 1))
    twin = source._twin
    feeds.close()
    assert twin is not None
    return twin


def test_a_twin_has_the_workers_and_the_queue_of_the_original(tmp_path: Path) -> None:
    loader = DataLoader(
        TensorDataset(torch.arange(64)),
        batch_size=4,
        num_workers=2,
        prefetch_factor=5,
        timeout=60,
        collate_fn=collate,
        worker_init_fn=init,
    )
    for name in SAME_WHERE_THERE:
        if hasattr(loader, name):
            setattr(loader, name, {"in_order": False, "pin_memory_device": "cpu"}[name])
    twin = twin_of(loader, tmp_path)
    for name in SAME_WHERE_THERE:
        assert getattr(twin, name, None) == getattr(loader, name, None)
    assert [getattr(twin, name) for name in SAME] == [getattr(loader, name) for name in SAME]
    assert twin.worker_init_fn is init  # and nothing of ours that would slow a worker down
    assert twin.persistent_workers  # started once, not in every block
    assert len(list(twin.batch_sampler or ())) == 4


def test_a_twin_without_loader_workers_has_none(tmp_path: Path) -> None:
    twin = twin_of(DataLoader(TensorDataset(torch.arange(64)), batch_size=4), tmp_path)
    assert (twin.num_workers, twin.prefetch_factor, twin.persistent_workers) == (0, None, False)
