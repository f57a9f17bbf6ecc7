"""Tasks for an agent: short scripts, whose worker writes what they say into a log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stash.launch.agent import LOGS, Task
from stash.launch.rendezvous import Point, variables


def task_of(
    folder: Path, script: str, environment: Mapping[str, str] | None = None, workers: int = 1
) -> Task:
    """A script that is shorter than any measurement: its workers end with exit code 1."""
    folder.mkdir(exist_ok=True)
    path = folder / "script.py"
    path.write_text(script)
    point = Point(nodes=1, node=0, host="127.0.0.1", port=1)
    return Task(
        folder=str(folder),
        arguments=["--out", str(folder / "out"), str(path)],
        environment=dict(os.environ if environment is None else environment),
        workers=[variables(point, workers, number) for number in range(workers)],
        cwd=os.getcwd(),
    )


def output_of(task: Task, number: int = 0) -> str:
    """What one of its workers has printed."""
    return (Path(task.folder) / LOGS / str(number) / "stdout.log").read_text()
