"""With the switches installed but nothing switched, training is what it is without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from engine.worlds import plan_of
from launch.running import start
from stash.engine import seams
from stash.engine.switchboard import Switchboard

pytestmark = pytest.mark.gang

ITERATIONS = 50


class Idle(Switchboard):
    """Lets the script train for real."""

    def step_begins(self, optimizer: torch.optim.Optimizer) -> None: ...

    def step_ended(self, optimizer: torch.optim.Optimizer) -> None: ...


def train(rank: int, folder: Path, with_seams: bool) -> None:
    torch.set_num_threads(1)
    if with_seams:
        seams.install(Idle(plan_of("node"), folder, DataLoader.__iter__))
    meeting = f"file://{folder}/meeting-{with_seams}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=1)
    network = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses: list[float] = []
    epoch = 0
    while len(losses) < ITERATIONS:
        sampler.set_epoch(epoch)
        epoch += 1
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    (folder / f"losses-{with_seams}-{rank}").write_text(json.dumps(losses))
    dist.barrier()


def test_losses_are_identical_to_those_of_plain_ddp(tmp_path: Path) -> None:
    for with_seams in (False, True):
        workers = [start(train, rank, tmp_path, with_seams, folder=tmp_path) for rank in range(2)]
        for worker in workers:
            assert worker.wait(60) == 0, worker.errors
    for rank in range(2):
        plain, idle = (
            json.loads((tmp_path / f"losses-{with_seams}-{rank}").read_text())
            for with_seams in (False, True)
        )
        assert plain == idle and len(plain) >= ITERATIONS
        assert plain[-1] != plain[0]
