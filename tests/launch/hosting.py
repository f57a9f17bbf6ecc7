"""Runs a script on the engine, alone or by two workers, without starting torchrun."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from engine.worlds import plan_of
from launch.running import Running, processes_of, start
from stash.results.assemble import Outcome, Recording, assemble
from stash.results.profile import Profile
from stash.results.recording import RecordingReader

#: A plain training loop, for scripts that go on to use it.
LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(
    [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}], lr=0.1, momentum=0.9
)

def iterate(limit=10**9):
    done = 0
    while done < limit:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            yield loss.item()
            if done == limit:
                return
"""


@dataclass(frozen=True)
class Hosted:
    """One script that ran on the engine, alone."""

    code: int
    folder: Path
    log: str

    @property
    def error(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / "error-0.json").read_text())
        return loaded

    @property
    def events(self) -> list[Any]:
        return list(RecordingReader(self.folder / "recording.jsonl").new_events())


def _run_host(folder: Path, plan: Path, arguments: list[str]) -> None:
    import torch

    from stash.engine import host

    torch.set_num_threads(1)
    os.chdir(folder)
    sys.path.insert(0, str(folder))  # as `python -m stash.engine.host` has it
    sys.argv = ["host", "--plan", str(plan), *arguments]
    host.main()


def run_hosted(folder: Path, *arguments: str, **options: Any) -> Hosted:
    options = {"max_rounds": 1, **options}
    plan = plan_of(*options.pop("steps", ("node", "warm")), **options)
    (folder / "plan.json").write_text(plan.model_dump_json())
    environment = {"SEEN": str(folder / "seen-hosted")}
    running: Running = start(
        _run_host,
        folder,
        folder / "plan.json",
        list(arguments),
        folder=folder,
        environment=environment,
    )
    code = running.wait(40)
    assert not processes_of(folder)
    return Hosted(code, folder, running.output + running.errors)


def run_hosted_gang(folder: Path, *arguments: str, **options: Any) -> Profile:
    """Two workers of a gang as torchrun would start them, and the profile of what they record."""
    run_folder = folder / "run"  # apart from the script's data, which is never looked for there
    run_folder.mkdir()
    plan = run_folder / "plan.json"
    plan.write_text(plan_of(**{"max_rounds": 2, **options}).model_dump_json())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    workers = [
        start(
            _run_host,
            folder,
            plan,
            list(arguments),
            folder=folder,
            environment={
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
        )
        for rank in range(2)
    ]
    for worker in workers:
        assert worker.wait(90) == 0, worker.output + worker.errors
    assert not processes_of(folder)
    recording = Recording()
    recording.add(RecordingReader(run_folder / "recording.jsonl").new_events())
    created = datetime.now(timezone.utc)
    return assemble(recording, Outcome(id="0" * 8, created=created, half_width_asked=0.03))


def write(folder: Path, *parts: str, name: str = "train_me.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(textwrap.dedent(part) for part in parts))
    return path
