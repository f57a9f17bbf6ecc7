"""Under NCCL, what lies in host memory still travels: by gloo, as with PyTorch's own groups."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from launch.running import Running, start
from stash.engine import exchange, seams
from stash.engine.exchange import SwitchableGroup

SIZE = 2


class OnlyGpus:
    """Stands in for NCCL's group, which refuses what lies in host memory."""

    def __init__(self, *args: Any) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            tensor = exchange._first_tensor(args)
            if tensor is not None and tensor.device.type == "cpu":
                raise RuntimeError("No backend type associated with device type cpu")
            self.asked.append(name)

        return call


@pytest.mark.parametrize(
    "arguments",
    [
        ([torch.empty(1, device="meta")],),
        ([[], [torch.empty(1, device="meta")]],),
        ([], [torch.empty(1, device="meta")]),
        (),
    ],
)
def test_what_lies_on_a_device_and_what_lies_nowhere_goes_to_the_group_of_gpus(
    arguments: tuple[Any, ...],
) -> None:
    gpus, host = OnlyGpus(), OnlyGpus()
    exchange._ByDevice(gpus, host).allgather(*arguments)
    assert (gpus.asked, host.asked) == (["allgather"], [])


def worker(rank: int, folder: Path) -> None:
    """What scripts send around beside gradients: objects, and numbers that live on the host."""
    torch.set_num_threads(1)
    exchange._nccl_group = OnlyGpus
    groups: list[SwitchableGroup] = []
    exchange.register(groups.append, lambda: seams._real_backend("nccl"))
    dist.init_process_group(
        exchange.BACKEND,
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=20),
    )
    objects: list[Any] = [None] * SIZE
    dist.all_gather_object(objects, {"rank": rank})
    named = [f"from {rank}"]
    dist.broadcast_object_list(named, src=0)
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    groups[0].turn(False)
    alone = torch.tensor([rank + 1.0])
    dist.all_reduce(alone)
    torch.save([groups[0].real_backend, objects, named, total, alone], folder / f"{rank}.pt")


@pytest.mark.gang
def test_objects_and_host_numbers_of_a_script_travel_although_it_asked_for_nccl(
    tmp_path: Path,
) -> None:
    workers: list[Running] = [
        start(worker, rank, tmp_path, folder=tmp_path) for rank in range(SIZE)
    ]
    codes = [running.wait(60) for running in workers]
    assert codes == [0, 0], "".join(running.errors for running in workers)
    for rank in range(SIZE):
        backend, objects, named, total, alone = torch.load(tmp_path / f"{rank}.pt")
        assert backend == "nccl"
        assert objects == [{"rank": 0}, {"rank": 1}]
        assert named == ["from 0"]
        assert (total.item(), alone.item()) == (3.0, rank + 1.0)
