"""The exchange switch between two real gloo workers, under DDP and under plain collectives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from launch.running import Running, start
from stash.engine import exchange
from stash.engine.exchange import SwitchableGroup

pytestmark = pytest.mark.gang

SIZE = 2
ROUNDS = 12
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unused parameters": {"find_unused_parameters": True},
    "bucket views": {"gradient_as_bucket_view": True},
    "both, small buckets": {
        "find_unused_parameters": True,
        "gradient_as_bucket_view": True,
        "bucket_cap_mb": 0.001,
    },
    "static graph": {"static_graph": True},
}

Results = dict[str, Any]


class Net(nn.Module):
    """With batch norm (buffers are broadcast) and a branch that takes no part in the loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
        self.unused = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(x)
        return y


# What the workers do.


def worker(rank: int, folder: Path) -> None:
    """Every scenario, one after the other, in one worker."""
    torch.set_num_threads(1)
    groups: list[SwitchableGroup] = []
    exchange.register(groups.append, lambda: "gloo")
    dist.init_process_group(
        exchange.BACKEND,
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=20),
    )
    side = dist.new_group(backend="gloo")
    results: Results = {"groups": [type(group).__name__ for group in groups]}
    (group,) = groups
    results["on"] = {name: collect(name, rank, None) for name in COLLECTIVES}
    results["gloo"] = {name: collect(name, rank, side) for name in COLLECTIVES}
    if rank == 0:  # the other one takes no part: nothing that is exchanged could complete
        with off(group):
            results["off"] = {name: collect(name, rank, None) for name in COLLECTIVES}
    dist.barrier(side)
    for name, options in OPTIONS.items():
        results[name] = train(rank, group, side, options)
    torch.save(results, folder / f"{rank}.pt")
    dist.barrier(side)


@contextmanager
def off(group: SwitchableGroup) -> Iterator[None]:
    group.on = False
    try:
        yield
    finally:
        group.on = True


def collect(name: str, rank: int, group: Any) -> Any:
    try:
        return COLLECTIVES[name](rank, group)
    except RuntimeError as error:  # gloo does not have them all
        return type(error).__name__


def own(rank: int) -> torch.Tensor:
    return torch.tensor([1.0, 2.0]) * (rank + 1)


def all_reduce(rank: int, group: Any) -> Any:
    value = own(rank)
    dist.all_reduce(value, group=group)
    return value


def all_reduce_later(rank: int, group: Any) -> Any:
    value = own(rank)
    work = dist.all_reduce(value, group=group, async_op=True)
    assert work is not None
    work.wait()
    assert work.is_completed()
    return value


def broadcast(rank: int, group: Any) -> Any:
    value = own(rank)
    dist.broadcast(value, src=0, group=group)
    return value


def reduce(rank: int, group: Any) -> Any:
    value = own(rank)
    dist.reduce(value, dst=0, group=group)
    return value if rank == 0 else None


def all_gather(rank: int, group: Any) -> Any:
    slots = [torch.empty(2) for _ in range(SIZE)]
    dist.all_gather(slots, own(rank), group=group)
    return slots


def all_gather_into_tensor(rank: int, group: Any) -> Any:
    whole = torch.empty(2 * SIZE)
    dist.all_gather_into_tensor(whole, own(rank), group=group)
    return whole


def all_gather_object(rank: int, group: Any) -> Any:
    slots: list[Any] = [None] * SIZE
    dist.all_gather_object(slots, {"rank": rank}, group=group)
    return slots


def broadcast_object(rank: int, group: Any) -> Any:
    shared = [f"from {rank}"]
    dist.broadcast_object_list(shared, src=0, group=group)
    return shared


def gather(rank: int, group: Any) -> Any:
    slots = [torch.empty(2) for _ in range(SIZE)] if rank == 0 else None
    dist.gather(own(rank), slots, dst=0, group=group)
    return slots


def scatter(rank: int, group: Any) -> Any:
    value = torch.empty(2)
    dist.scatter(value, [own(0), own(1)] if rank == 0 else None, src=0, group=group)
    return value


def reduce_scatter(rank: int, group: Any) -> Any:
    value = torch.empty(2)
    dist.reduce_scatter(value, [own(rank), own(rank) + 10], group=group)
    return value


def reduce_scatter_tensor(rank: int, group: Any) -> Any:
    value = torch.empty(1)
    dist.reduce_scatter_tensor(value, own(rank), group=group)
    return value


def all_to_all(rank: int, group: Any) -> Any:
    value = torch.empty(2)
    dist.all_to_all_single(value, own(rank), group=group)
    return value


def barrier(rank: int, group: Any) -> Any:
    dist.barrier(group)
    return "passed"


COLLECTIVES: dict[str, Callable[[int, Any], Any]] = {
    function.__name__: function
    for function in (
        all_reduce,
        all_reduce_later,
        broadcast,
        reduce,
        all_gather,
        all_gather_into_tensor,
        all_gather_object,
        broadcast_object,
        gather,
        scatter,
        reduce_scatter,
        reduce_scatter_tensor,
        all_to_all,
        barrier,
    )
}


def batch_of(rank: int) -> torch.Tensor:
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(10 + rank))


def gradients(model: nn.Module, rank: int) -> list[torch.Tensor]:
    """Of one iteration; the same weights and the same batch every time."""
    model.zero_grad()
    model(batch_of(rank)).square().sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def train(rank: int, group: SwitchableGroup, side: Any, options: dict[str, Any]) -> Results:
    """Shuffled blocks as the engine runs them, then gradients with exchange on and off."""
    net = Net()
    if "find_unused_parameters" not in options and "static_graph" not in options:
        del net.unused
    switched = DistributedDataParallel(net, **options)
    plain = DistributedDataParallel(Net(), process_group=side, find_unused_parameters=True)
    for _ in range(3):  # buckets are rebuilt over the whole group in the second iteration
        gradients(switched, rank)
    order = [step for _ in range(ROUNDS) for step in ("solo", "unsynced", "node")]
    random.Random(0).shuffle(order)
    counts = {"solo": 0, "unsynced": 0, "node": 0, "caught up": 0}
    for step in order:
        block(step, rank, switched, group, side, counts)
    with off(group):
        local = gradients(switched, rank)
    alone = Net()
    return {
        "counts": counts,
        "shared": gradients(switched, rank),
        "by plain DDP": [g for g in gradients(plain, rank) if g.abs().sum() > 0],
        "with exchange off": local,
        "without DDP": gradients(alone, rank),
    }


def block(
    step: str,
    rank: int,
    model: nn.Module,
    group: SwitchableGroup,
    side: Any,
    counts: dict[str, int],
) -> None:
    """Two iterations of a step; a worker that was left out waits, then catches up."""
    runs = step != "solo" or rank == 0
    group.on = step == "node"
    if runs:
        for _ in range(2):
            gradients(model, rank)
            counts[step] += 1
    dist.barrier(side)
    if not runs:
        for _ in range(2):
            gradients(model, rank)
            counts["caught up"] += 1
    dist.barrier(side)
    group.on = True


# What came of it.


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    folder = tmp_path_factory.mktemp("exchange")
    workers: list[Running] = [start(worker, rank, folder, folder=folder) for rank in range(SIZE)]
    codes = [running.wait(60) for running in workers]  # bounded: a hang ends here
    assert codes == [0, 0], "".join(running.errors for running in workers)
    return [torch.load(folder / f"{rank}.pt") for rank in range(SIZE)]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.allclose(left, right, atol=1e-6)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def test_only_the_default_group_goes_through_the_switch(results: list[Results]) -> None:
    assert results[0]["groups"] == ["SwitchableGroup"]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_is_on_does_what_gloo_does(results: list[Results], name: str) -> None:
    for result in results:
        assert same(result["on"][name], result["gloo"][name])


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("all_reduce", own(0)),
        ("all_reduce_later", own(0)),
        ("broadcast", own(0)),
        ("reduce", own(0)),
        ("all_gather", [own(0), own(0)]),
        ("all_gather_into_tensor", torch.cat([own(0), own(0)])),
        ("all_gather_object", [{"rank": 0}, {"rank": 0}]),
        ("broadcast_object", ["from 0"]),
        ("gather", [own(0), own(0)]),
        ("scatter", own(0)),
        ("reduce_scatter", own(0)),
        ("reduce_scatter_tensor", own(0)[:1]),
        ("all_to_all", own(0)),
        ("barrier", "passed"),
    ],
)
def test_a_collective_that_is_off_completes_alone_with_local_values(
    results: list[Results], name: str, local: Any
) -> None:
    assert same(results[0]["off"][name], local)


def test_no_collective_is_left_untried_when_off(results: list[Results]) -> None:
    assert set(results[0]["off"]) == set(COLLECTIVES)


@pytest.mark.parametrize("options", OPTIONS)
def test_shuffled_blocks_with_catching_up_never_hang(results: list[Results], options: str) -> None:
    first, second = (result[options]["counts"] for result in results)
    assert first == {"solo": 24, "unsynced": 24, "node": 24, "caught up": 0}
    assert second == {"solo": 0, "unsynced": 24, "node": 24, "caught up": 24}


@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_are_those_of_plain_ddp_when_on(results: list[Results], options: str) -> None:
    for result in results:
        shared = [g for g in result[options]["shared"] if g.abs().sum() > 0]
        assert same(shared, result[options]["by plain DDP"])
    assert same(results[0][options]["shared"], results[1][options]["shared"])


@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_are_local_when_off(results: list[Results], options: str) -> None:
    """DDP divides by the number of workers before it sums, so local ones are that much smaller."""
    for result in results:
        local = [g * SIZE for g in result[options]["with exchange off"] if g.abs().sum() > 0]
        assert same(local, result[options]["without DDP"])
    first, second = (result[options]["with exchange off"] for result in results)
    assert not same(first, second)
