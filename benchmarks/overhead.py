"""What the engine costs: a training loop on the engine against the same loop without it.

Both loops run in the same two workers, block by block in random order, with plain gloo and plain
DDP on one side and the switchable group, the replay feed and the step hooks on the other. In the
case `idle` nothing is switched: the script's own loader and learning rate, through all seams.

    python benchmarks/overhead.py [--minutes 3] [--only conv]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BOUNDS = {"emulated": 1.01, "conv": 1.02, "tiny-layers": 1.03, "idle": 1.01}
#: Untimed iterations after a switch; none where one is so long that more pairs tell more.
LEAD_IN = {"emulated": 1, "conv": 1, "tiny-layers": 0, "idle": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="per case")
    parser.add_argument("--only", choices=tuple(BOUNDS))
    options = parser.parse_args()
    if "RANK" in os.environ:
        _worker(options.only, options.minutes)
        return
    for case in [options.only] if options.only else BOUNDS:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", "2", __file__]
        command += ["--minutes", str(options.minutes), "--only", case]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _worker(case: str, minutes: float) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    from stash.engine import seams
    from stash.engine.feed import Window
    from stash.engine.gang import DistributedGang
    from stash.engine.observe import Loop
    from stash.engine.plan import Plan
    from stash.engine.switchboard import Switchboard
    from stash.results import statistics
    from stash.results.steps import STEP_BY_NAME

    rank = int(os.environ["LOCAL_RANK"])
    if case != "emulated" and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp(prefix="stash-overhead-"))
    plan = Plan(steps=("node",), workload=case, device=_device(case))
    board = Switchboard(plan, folder, DataLoader.__iter__)
    uninstall = seams.install(board)
    dist.init_process_group("gloo")
    plain = dist.distributed_c10d.new_group(backend="gloo")  # not the one that can be switched
    gang = DistributedGang()

    loader, make_model, make_optimizer, loss, settings = _case(case)
    batches = list(DataLoader.__iter__(loader))
    sides = {}
    for name, group in (("engine", None), ("bare", plain)):
        model = DistributedDataParallel(make_model(), process_group=group, **settings)
        sides[name] = (model, make_optimizer(model.parameters()))

    def run(name: str, iterations: int, stream: Iterator[Any]) -> None:
        model, optimizer = sides[name]
        for _ in range(iterations):
            batch = next(stream)
            optimizer.zero_grad()
            loss(model, batch).backward()
            optimizer.step()

    if case == "idle":
        # A script before anything is switched: its own loader, through the seam or without it.
        board.step_begins = board.step_ended = lambda optimizer: None
        streams = {
            "engine": _endless(loader, lambda one: seams._Fed(one, board, board.iterate)),
            "bare": _endless(loader, board.iterate),
        }
    else:
        # The engine inside a `node` block: its own feed, and a story that yields and yields.
        engine_optimizer = sides["engine"][1]
        board._loop = Loop(
            engine_optimizer, (engine_optimizer,), loader, 1, 0, "fp32", None, True, ()
        )
        board._story = _forever()
        board._feeds = _feeds(board, loader, folder)
        board._feeds.use_window(Window(1, len(batches) - 1, 0))
        board.set(STEP_BY_NAME["node"])
        streams = {
            "engine": seams._Fed(loader, board, board.iterate),
            "bare": itertools.cycle(batches),
        }
    board._observer.close()
    hooks = _Hooks(board, uninstall)
    times: dict[str, list[float]] = {"engine": [], "bare": []}
    for name in streams:
        with hooks.on(name == "engine"):
            run(name, 10, streams[name])
    began = time.perf_counter()
    order = random.Random(0)
    length, calibrated = 1, False
    while True:
        pair = ["engine", "bare"]
        order.shuffle(pair)
        for name in pair:
            with hooks.on(name == "engine"):
                run(name, LEAD_IN[case], streams[name])
                board.synchronize()
                gang.barrier()
                start = time.perf_counter()
                run(name, length, streams[name])
                board.synchronize()
                seconds = time.perf_counter() - start
            times[name].append(max(s for (s,) in gang.gather([seconds])) / length)
        if not calibrated and len(times["bare"]) == 5:
            calibrated = True
            typical = sorted(times["bare"])[2]
            length = gang.follow(max(1, round(0.05 / typical)))
            times = {"engine": [], "bare": []}
        if gang.follow(time.perf_counter() - began > minutes * 60):
            break
    if rank == 0:
        extra = [e - b for e, b in zip(times["engine"], times["bare"], strict=True)]
        ratio = statistics.ratio([extra], [times["bare"]])
        result = {
            "case": case,
            "pairs": len(extra),
            "iteration_ms": round(1e3 * statistics.trimmed_mean(times["bare"]), 2),
            "ratio": round(1 + ratio.value, 4),
            "low": round(1 + (ratio.low or 0), 4),
            "high": round(1 + (ratio.high or 0), 4),
            "bound": BOUNDS[case],
            "passed": 1 + (ratio.high or 0) <= BOUNDS[case],
        }
        print(json.dumps(result), flush=True)
    gang.barrier()
    os._exit(0)


class _Hooks:
    """Turns the step hooks on for the engine's blocks only; the bare loop has none."""

    def __init__(self, board: Any, uninstall: Callable[[], None]) -> None:
        self._board = board
        uninstall()

    def on(self, wanted: bool) -> Any:
        from contextlib import ExitStack

        from stash.engine import seams

        stack = ExitStack()
        if wanted:
            seams._install_hooks(self._board, stack)
        return stack


def _endless(loader: Any, iterate: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
    while True:
        yield from iterate(loader)


def _forever() -> Iterator[None]:
    while True:
        yield


def _feeds(board: Any, loader: Any, folder: Path) -> Any:
    from stash.engine.feed import Feeds
    from stash.engine.sources import LoaderSource

    source = LoaderSource(loader, board.iterate)
    return Feeds(source, board._device, run_folder=folder, data_folder=None)


def _device(case: str) -> str:
    return "emulated:v100:bytes=0.1" if case == "emulated" else "cpu"


def _case(case: str) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from stash.hardware.device_names import parse
    from stash.workloads import zoo
    from stash.workloads.emulated import Accelerator, EmulatedModel, EmulatedOptimizer
    from stash.workloads.train import _buckets

    def sgd(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)

    if case == "emulated":
        name = parse(_device(case))
        accelerator = Accelerator(name, zoo.layers("resnet50", 32), "fp32")
        loader = DataLoader(TensorDataset(torch.zeros(8, 1)), batch_size=2)
        return (
            loader,
            lambda: EmulatedModel(accelerator),
            lambda parameters: EmulatedOptimizer(parameters, accelerator),
            lambda model, batch: model(batch),
            {"gradient_as_bucket_view": True, **_buckets(name)},
        )
    if case in ("conv", "idle"):
        entry = zoo.get("tinycnn")
        size = entry.inputs.size  # type: ignore[union-attr]
        data = TensorDataset(torch.randn(32, 3, size, size), torch.zeros(32, dtype=torch.long))
        return DataLoader(data, batch_size=8), entry.builder, sgd, entry.loss, {}
    layers = [nn.Linear(64, 64, bias=False) for _ in range(75)]
    data = TensorDataset(torch.randn(64, 64))
    return (
        DataLoader(data, batch_size=16),
        lambda: nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in layers]),
        sgd,
        lambda model, batch: model(batch[0]).square().mean(),
        {"bucket_cap_mb": 64 * 64 * 4 / 2**20},
    )


if __name__ == "__main__":
    main()
