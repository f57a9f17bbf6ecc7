"""Users' own training scripts, unchanged, on two real workers: the examples and docs/scripts.md."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import stash
from launch.hosting import run_hosted_gang
from launch.running import assert_no_orphans, start, temporary_files_in
from stash.launch.api import measure
from stash.launch.request import Request
from stash.launch.supervise import Event
from stash.results.profile import Profile
from stash.results.recording import Round
from stash.workloads.torchvision_ops import install_import_hook

pytestmark = pytest.mark.gang

TREE = Path(__file__).parent.parent.parent
EXAMPLES = TREE / "examples"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@dataclass(frozen=True)
class Row:
    """One line of the table in docs/scripts.md."""

    script: str
    arguments: str
    steps: frozenset[str]
    stalls: frozenset[str]
    checks: frozenset[str]


def table() -> list[Row]:
    text = (TREE / "docs" / "scripts.md").read_text()
    rows = re.findall(r"^\| `(\w+\.py) ?([^`]*)` \|(.*)\|(.*)\|(.*)\|.*\|$", text, re.MULTILINE)
    return [
        Row(name, arguments, *(frozenset(re.findall(r"`([\w ]+)`", cell)) for cell in cells))
        for name, arguments, *cells in rows
    ]


#: What an example needs beside torch.
NEEDS = {
    "hf_trainer.py": ("transformers", "accelerate"),
    "hf_accelerate.py": ("transformers", "accelerate"),
    "lightning_module.py": ("pytorch_lightning",),
}


def hindrance(script: str) -> str | None:
    """Why an example cannot run in this environment, with Stash or without."""
    missing = [name for name in NEEDS.get(script, ()) if importlib.util.find_spec(name) is None]
    if missing:
        return f"{script} needs {', '.join(missing)}: pip install '.[examples]'"
    if script == "fsdp2.py" and not hasattr(torch.cpu.Stream, "record_event"):
        return f"FSDP2 of torch {torch.__version__} does not run on CPUs"
    return None


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a script runs; a short name, because sockets are made below it."""
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        before = Path.cwd()
        os.chdir(name)
        yield Path(name)
        os.chdir(before)


def test_the_table_tells_of_every_example() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")} - {"own_workload.py"}
    assert {row.script for row in table()} == scripts


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row.script} {row.arguments}".strip())
def test_every_example_is_measured_as_the_table_says(row: Row, folder: Path) -> None:
    if reason := hindrance(row.script):
        pytest.skip(reason)
    script = str(EXAMPLES / row.script)
    profile = run_hosted_gang(folder, script, *row.arguments.split())
    assert profile.run.stopped_because == "rounds"
    assert set(profile.steps) == row.steps
    assert set(profile.stalls) == row.stalls
    limits = {"feed", "exchange", "own collectives", "other loaders", "batches in place"}
    limits |= {"data files"}
    warned = {check.name for check in profile.checks if check.status == "warn"}
    assert warned & limits == row.checks
    assert profile.machine.workers == 2
    EXPECTED.get(row.script, lambda profile: None)(profile)


def _accumulates(profile: Profile) -> None:
    assert profile.workload.batch_per_worker == 4 * 8 and profile.workload.dtype == "bf16"
    assert profile.workload.iterations_per_epoch == 512 // 2 // 8 // 4


def _has_no_loader(profile: Profile) -> None:
    assert profile.workload.batch_per_worker == 4 and profile.workload.loader_workers == 0


def _leaves_no_checkpoint(profile: Profile) -> None:
    assert not Path("checkpoints").exists()
    assert profile.workload.samples == 4 * 64


EXPECTED = {
    "accumulate_amp.py": _accumulates,
    "nanogpt_style.py": _has_no_loader,
    "imagenet_style.py": _leaves_no_checkpoint,
}

SHORT = {
    "plain_ddp.py": ["--epochs", "1"],
    "imagenet_style.py": ["photos", "--epochs", "1"],
    "accumulate_amp.py": ["--steps", "3"],
    "nanogpt_style.py": ["--max-iters", "3"],
    "tar_stream.py": ["--steps", "3"],
    "fsdp2.py": ["--steps", "3"],
    "hf_trainer.py": ["--max-steps", "3"],
    "hf_accelerate.py": ["--steps", "3"],
    "lightning_module.py": ["--max-steps", "3"],
}


destroy_process_group = dist.destroy_process_group


def destroy_quietly(group: Any = None) -> None:
    """While gloo's threads are idle: with torch 2.13 they may wait for the interpreter for ever."""
    dist.barrier()
    time.sleep(0.2)
    destroy_process_group(group)


def run_plainly(folder: Path, rank: int, ports: dict[str, int]) -> None:
    """These examples in turn, in one of two workers; Stash only mends the import of torchvision."""
    torch.set_num_threads(1)
    install_import_hook()
    dist.destroy_process_group = destroy_quietly
    os.chdir(folder)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    for name, port in ports.items():
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        sys.argv = [str(EXAMPLES / name), *SHORT[name]]
        runpy.run_path(sys.argv[0], run_name="__main__")


def test_every_example_runs_without_stash(folder: Path) -> None:
    possible = [name for name in SHORT if hindrance(name) is None]
    with contextlib.ExitStack() as stack:
        sockets = {name: stack.enter_context(socket.socket()) for name in possible}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        ports = {name: one.getsockname()[1] for name, one in sockets.items()}
    workers = [start(run_plainly, folder, rank, ports, folder=folder) for rank in range(2)]
    for worker in workers:
        assert worker.wait(90) == 0, worker.errors
    assert workers[0].output.count("loss") >= len(possible)
    assert (folder / "checkpoints" / "model_best.pth.tar").exists()
    assert set(SHORT) == {row.script for row in table()}


def test_a_launch_line_of_ones_own_leads_to_the_same_profile(folder: Path) -> None:
    command = [*TORCHRUN, "-m", "stash.engine.host", "--max-rounds", "2", "--out", "kept"]
    command += [str(EXAMPLES / "plain_ddp.py"), "--epochs", "99"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "kept").iterdir()
    profile = stash.load(path)
    assert str(path) in done.stderr
    assert profile.run.rounds == 2 and profile.run.stopped_because == "rounds"
    row = next(row for row in table() if row.script == "plain_ddp.py")
    assert set(profile.stalls) == row.stalls and profile.machine.workers == 2


#: Overwrites its checkpoint in every iteration; ends in a way of its own once told to.
OWN_WAYS = """
import signal, sys
from pathlib import Path
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
assert sys.stdin.read() == ""
dist.init_process_group()
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
while True:
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        torch.save(model.state_dict(), f"checkpoints/model-{dist.get_rank()}.pt")
        if Path("stop").exists() and dist.get_rank() == 1:
            print("my last words")
            sys.exit("the licence has expired")
"""


def test_a_script_that_ends_early_is_quoted_its_rounds_and_its_checkpoints_are_kept(
    folder: Path,
) -> None:
    (folder / "mine.py").write_text(OWN_WAYS)
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "model-0.pt").write_bytes(b"of last week")

    def listen(events: Iterable[Event]) -> None:
        if any(isinstance(event, Round) for event in events):
            (folder / "stop").touch()

    request = Request(
        workload="mine.py",
        nproc_per_node=2,
        steps=("node", "warm"),
        half_width=1e-9,
        protect=(Path("checkpoints"),),
        out=folder / "out",
    )
    with temporary_files_in(folder):
        measured = measure(request, listen)
    assert_no_orphans(folder)
    run = measured.profile.run
    assert measured.exit_code == 1 and run.rounds >= 1 and run.stopped_because == "failed"
    said = measured.last_words or ""
    assert "Worker 1 failed: the script called sys.exit('the licence has expired')" in said
    assert "my last words" in said
    document = measured.path.read_text()
    assert "Worker 1 failed: the script called sys.exit(...)" in run.message
    assert "licence" not in document and "my last words" not in document
    left = list((folder / "checkpoints").iterdir())
    assert [path.name for path in left] == ["model-0.pt"]
    assert left[0].read_bytes() == b"of last week"
