"""The ways in which one training loop runs: bare, on the engine, under another tool.

All of them live in the same workers. Only the engine needs a model of its own, because its process
group is another one; other tools work on the very model of the bare loop.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from children import end_with_us
from overhead_cases import Case, build, device_of
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from stash.engine import seams
from stash.engine.feed import Feeds, Window
from stash.engine.gang import DistributedGang
from stash.engine.observe import Loop
from stash.engine.plan import Plan
from stash.engine.sources import LoaderSource
from stash.engine.switchboard import Switchboard
from stash.results.steps import STEP_BY_NAME

TRACEML_SESSION = "stash-overhead"

Around = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Side:
    """One way to run the loop."""

    model: Any
    optimizer: torch.optim.Optimizer
    batches: Iterator[Any]
    loss: Callable[[Any, Any], torch.Tensor]
    around_block: Around = nullcontext
    around_iteration: Around = nullcontext

    def run(self, iterations: int) -> None:
        """So many iterations."""
        for _ in range(iterations):
            batch = next(self.batches)
            with self.around_iteration():
                self.optimizer.zero_grad()
                self.loss(self.model, batch).backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()


def make_sides(
    name: str, peer: str | None, folder: Path, first: str
) -> tuple[dict[str, Side], Switchboard]:
    """All sides of one case; makes the process groups, the engine's and a plain one."""
    plan = Plan(steps=("node",), workload=name, device=device_of(name))
    board = Switchboard(plan, folder, DataLoader.__iter__)
    uninstall = seams.install(board)
    dist.init_process_group("gloo")
    board._gang = DistributedGang()
    plain = dist.distributed_c10d.new_group(backend="gloo")  # not the one that can be switched
    case = build(name)
    make: dict[str, Callable[[], Side]]
    if name.startswith("idle"):
        make = {"bare": lambda: _loading(case, plain, board), "engine": lambda: _idle(case, board)}
    else:
        make = {
            "bare": lambda: _bare(case, plain, board),
            "engine": lambda: _engine(case, board, folder),
        }
    sides = {side: make[side]() for side in sorted(make, key=lambda side: side != first)}
    board._observer.close()
    uninstall()  # the hooks are put back around the engine's own blocks
    if peer is not None:
        sides[peer] = _peer(peer, sides["bare"], folder)
    return sides, board


def _bare(case: Case, group: Any, board: Switchboard) -> Side:
    model = DistributedDataParallel(case.make_model(), process_group=group, **case.settings)
    batches = itertools.cycle(list(board.iterate(case.loader)))
    return Side(model, case.make_optimizer(model.parameters()), batches, case.loss)


def _engine(case: Case, board: Switchboard, folder: Path) -> Side:
    """The engine as it is inside a `node` block: its own feed, a story that yields and yields."""
    model = DistributedDataParallel(case.make_model(), **case.settings)
    optimizer = case.make_optimizer(model.parameters())
    board._loop = Loop(optimizer, (optimizer,), case.loader, 1, 0, "fp32", None, True, ())
    board._story = itertools.repeat(None)
    source = LoaderSource(case.loader, board.iterate)
    board._feeds = Feeds(source, board._device, run_folder=folder, data_folder=None)
    board._feeds.use_window(Window(1, len(case.loader) - 1, 0))
    board.set(STEP_BY_NAME["node"])
    batches = seams._Fed(case.loader, board, board.iterate)
    return Side(model, optimizer, batches, case.loss, around_block=_hooked(board))


def _loading(case: Case, group: Any, board: Switchboard) -> Side:
    """A bare loop over its own loader."""
    model = DistributedDataParallel(case.make_model(), process_group=group, **case.settings)
    batches = _endless(lambda: board.iterate(case.loader))
    return Side(model, case.make_optimizer(model.parameters()), batches, case.loss)


def _idle(case: Case, board: Switchboard) -> Side:
    """A script whose feed and exchange stay its own: through all seams, and the hooks of a step."""
    model = DistributedDataParallel(case.make_model(), **case.settings)
    batches = _endless(lambda: seams._Fed(case.loader, board, board.iterate))
    optimizer = case.make_optimizer(model.parameters())
    board._loop = Loop(optimizer, (optimizer,), case.loader, 1, 0, "fp32", None, True, ())
    board._story = itertools.repeat(None)
    return Side(model, optimizer, batches, case.loss, around_block=_hooked(board))


def _hooked(board: Switchboard) -> Around:
    @contextmanager
    def hooked() -> Iterator[None]:
        with ExitStack() as stack:
            seams._install_hooks(board, stack)
            yield

    return hooked


def _endless(begin: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    while True:
        yield from begin()


def _peer(peer: str, bare: Side, folder: Path) -> Side:
    around_block: Around = nullcontext
    around_iteration: Around = nullcontext
    if peer == "traceml":
        around_iteration = _traced(bare.model, folder)
    else:
        with_stack = peer.endswith("stacks")
        around_block = lambda: torch.profiler.profile(with_stack=with_stack)  # noqa: E731
    return Side(bare.model, bare.optimizer, bare.batches, bare.loss, around_block, around_iteration)


def _traced(model: Any, folder: Path) -> Around:
    """TraceML as its documentation says: started once, then a context around every step.

    Its thread samples during the other sides' blocks, too: what is told of it is the cost of a
    traced step beside that.
    """
    import traceml_ai

    traceml_ai.init(ui_mode="summary", logs_dir=str(folder), on_missing_aggregator="raise")
    return lambda: traceml_ai.trace_step(model)


@contextmanager
def serving(peer: str | None, folder: Path) -> Iterator[dict[str, str]]:
    """What a peer needs beside the workers; gives the environment that they need."""
    if peer != "traceml":
        yield {}
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [str(Path(sys.executable).with_name("traceml")), "serve", "--mode", "summary"]
    command += ["--logs-dir", str(folder), "--aggregator-port", port, "--nproc-per-node", "2"]
    command += ["--session-id", TRACEML_SESSION]
    server = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
        preexec_fn=end_with_us,
    )
    try:
        yield {"TRACEML_AGGREGATOR_PORT": port, "TRACEML_SESSION_ID": TRACEML_SESSION}
    finally:
        server.terminate()
        server.wait()
