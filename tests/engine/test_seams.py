"""Where the switchboard meets PyTorch: these hold for the installed torch, or Stash does not."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from engine.worlds import plan_of
from launch.hosting import LOOP, run_hosted, write
from launch.running import start
from stash.engine import seams
from stash.engine.exchange import BACKEND, SwitchableGroup
from stash.engine.switchboard import Switchboard
from stash.errors import StashError


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Switchboard]:
    switchboard = Switchboard(plan_of("node"), tmp_path, DataLoader.__iter__)
    undo = seams.install(switchboard)
    yield switchboard
    undo()


def make_loader(workers: int = 0) -> DataLoader[Any]:
    data = TensorDataset(torch.arange(20))
    generator = torch.Generator().manual_seed(3)
    return DataLoader(data, batch_size=4, shuffle=True, num_workers=workers, generator=generator)


def values(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch.tolist() for (batch,) in loader]


def test_undoing_leaves_torch_as_it_was(tmp_path: Path) -> None:
    before = (DataLoader.__iter__, dist.init_process_group)
    switchboard = Switchboard(plan_of("node"), tmp_path, DataLoader.__iter__)
    undo = seams.install(switchboard)
    assert (DataLoader.__iter__, dist.init_process_group) != before
    undo()
    assert (DataLoader.__iter__, dist.init_process_group) == before
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.5).step()
    assert weight.item() == 0.5


@pytest.mark.parametrize("workers", [0, 2])
def test_until_the_first_step_a_loader_hands_out_its_own_batches(
    installed: Switchboard, workers: int
) -> None:
    with_seams = values(make_loader(workers))
    plainly = [b.tolist() for (b,) in installed.iterate(make_loader(workers))]
    assert with_seams == plainly and len(with_seams) == 5


def test_an_iterator_still_knows_its_length_and_ends(installed: Switchboard) -> None:
    loader = make_loader()
    iterator = iter(loader)
    assert len(iterator) == len(loader) == 5
    assert iter(iterator) is iterator
    assert len(list(iterator)) == 5
    with pytest.raises(StopIteration):
        next(iterator)
    assert len(values(loader)) == 5


def overflowing(scale: float) -> tuple[torch.optim.Optimizer, Any]:
    """An optimizer, and a scaler that has just found its gradients as large as this."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((weight * scale).sum()).backward()  # type: ignore[no-untyped-call]
    return optimizer, scaler


@pytest.mark.parametrize(("scale", "stepped"), [(1.0, 1), (float("inf"), 0)])
def test_a_step_that_the_gradient_scaler_skips_ends_an_iteration_too(
    installed: Switchboard, monkeypatch: pytest.MonkeyPatch, scale: float, stepped: int
) -> None:
    ended: list[Any] = []
    steps: list[Any] = []
    end = installed.iteration_ended
    monkeypatch.setattr(installed, "iteration_ended", lambda o: (ended.append(o), end(o)))
    monkeypatch.setattr(torch.optim.SGD, "step", noting(torch.optim.SGD.step, steps))
    optimizer, scaler = overflowing(scale)
    scaler.step(optimizer)
    assert ended == [optimizer] and len(steps) == stepped


def noting(method: Any, calls: list[Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return method(*args, **kwargs)

    return call


def test_an_optimizer_that_calls_its_parents_step_takes_one_step(installed: Switchboard) -> None:
    class Wrapping(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:  # type: ignore[override]
            return super().step(closure)

    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.5)  # PyTorch hooks the step of a class when it is first used
    wrapping = Wrapping([weight], lr=0.5)
    wrapping.step()
    assert installed.steps == 1
    assert wrapping.param_groups[0]["lr"] == 0.5 and weight.item() == 1.0


def test_a_script_may_not_start_workers_of_its_own(installed: Switchboard) -> None:
    import torch.multiprocessing as mp

    with pytest.raises(StashError, match=r"torch\.multiprocessing\.spawn"):
        mp.spawn(print, nprocs=2)


def test_a_process_that_the_script_has_forked_is_left_alone(installed: Switchboard) -> None:
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    child = context.Process(target=_train_in_child, args=(answer,))
    child.start()
    weight, batches = answer.get(timeout=30)
    child.join(30)
    assert weight == 0.5 and batches == [0, 1, 2, 3]
    assert installed.steps == 0


def _train_in_child(answer: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.5).step()
    loader = DataLoader(TensorDataset(torch.arange(4)), batch_size=2)
    answer.put((weight.item(), [int(i) for (batch,) in loader for i in batch]))


def _make_groups(folder: Path, backend: dict[str, Any]) -> None:
    made: list[SwitchableGroup] = []

    class Noting(Switchboard):
        def group_made(self, group: SwitchableGroup) -> None:
            made.append(group)

    seams.install(Noting(plan_of("node"), folder, DataLoader.__iter__))
    dist.init_process_group(**backend, init_method=f"file://{folder}/meet", rank=0, world_size=1)
    dist.new_group([0])
    dist.new_group([0], backend="gloo")
    value = torch.ones(2)
    dist.all_reduce(value)
    found = {
        "groups": len(made),
        "real": [type(group._inner).__name__ for group in made],
        "default": isinstance(dist.group.WORLD, dist.ProcessGroup),
        "rank": dist.get_rank(),
        "backend": dist.get_backend(),
        "names": len({group.group_name for group in made}),
        "value": value.tolist(),
    }
    (folder / "found").write_text(json.dumps(found))


def test_a_group_tells_the_name_of_its_own_backend(
    installed: Switchboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script asks, to decide where its tensors must lie."""
    groups = {name: SwitchableGroup(0, 1, None, real_backend=name) for name in ("gloo", "nccl")}
    for name, group in groups.items():
        monkeypatch.setitem(dist.distributed_c10d._world.pg_map, group, (BACKEND, None))
        assert dist.get_backend(group) == name


@pytest.mark.parametrize("backend", ["mpi", "UCC"])
def test_a_backend_that_cannot_be_switched_is_refused_by_name(
    installed: Switchboard, backend: str
) -> None:
    with pytest.raises(StashError, match=f"exchanges gradients by '{backend}', which Stash cannot"):
        dist.init_process_group(backend)


@pytest.mark.gang
@pytest.mark.parametrize(
    "backend",
    [{}, {"backend": "gloo"}, {"backend": "cpu:gloo,cuda:nccl"}, {"backend": None}],
    ids=str,
)
def test_whatever_backend_a_script_names_its_groups_go_through_the_switch(
    tmp_path: Path, backend: dict[str, Any]
) -> None:
    running = start(_make_groups, tmp_path, backend, folder=tmp_path)
    assert running.wait(30) == 0, running.errors
    found = json.loads((tmp_path / "found").read_text())
    # The script's own gloo group, too: it would hang where only one worker runs.
    assert found == {
        "groups": 3,
        "real": ["ProcessGroupGloo"] * 3,
        "backend": "gloo",
        "names": 3,
        "default": True,
        "rank": 0,
        "value": [1.0, 1.0],
    }


OPTIMIZERS = """
import json
weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(7)]
optimizers = [
    torch.optim.SGD([weights[0]], lr=0.1, momentum=0.9, weight_decay=0.1),
    torch.optim.AdamW([weights[1]], lr=0.2, weight_decay=0.1),
    torch.optim.Adam([weights[2]], lr=torch.tensor(0.25)),
    torch.optim.RMSprop([weights[3]], lr=0.4),
    torch.optim.Adagrad([weights[4]], lr=0.5),
    torch.optim.NAdam([weights[5]], lr=0.6),
    torch.optim.Adadelta([weights[6]], lr=0.7),
]
schedule = torch.optim.lr_scheduler.StepLR(optimizers[0], step_size=1, gamma=0.5)
seen = []
while True:
    for x, y in loader:
        for weight, optimizer in zip(weights, optimizers):
            weight.grad = torch.ones(3)
            optimizer.step()
        if len(seen) < 4:
            seen.append([float(o.param_groups[0]["lr"]) for o in optimizers])
            schedule.step()
        kept = all(torch.equal(weight, torch.ones(3)) for weight in weights)
        with open("found", "w") as file:
            json.dump({"kept": kept, "rates": seen}, file)
"""


@pytest.mark.gang
def test_every_optimizer_keeps_its_weights_and_gets_its_rate_back(tmp_path: Path) -> None:
    script = write(tmp_path, LOOP, OPTIMIZERS)
    hosted = run_hosted(tmp_path, str(script), steps=("node",), max_rounds=12)
    assert hosted.code == 0, hosted.log
    found = json.loads((tmp_path / "found").read_text())
    assert found["kept"]
    assert [rates[0] for rates in found["rates"]][:3] == [0.1, 0.05, 0.025]
    for rates in found["rates"]:
        assert rates[1:] == pytest.approx([0.2, 0.25, 0.4, 0.5, 0.6, 0.7])
