"""SkyPilot: a task that runs `stash profile` on every node of a cluster it rents.

The profile comes back through the task's log. Never run on a cloud by its authors: the task is
checked by SkyPilot's own parser, and its commands run on test hosts with SkyPilot's variables.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stash.errors import StashError
from stash.launch.job import CARRIED, Job, as_yaml, required

PORT = 29400
_FIRST_ADDRESS = '"$(echo "$SKYPILOT_NODE_IPS" | head -n 1):' + f'{PORT}"'


@dataclass(frozen=True, kw_only=True)
class SkyOptions:
    """What SkyPilot should rent, and what it should put there."""

    infra: str | None = None
    instance: str | None = None
    accelerators: str | None = None
    spot: bool = False
    workdir: Path | None = None
    setup: tuple[str, ...] = ()


def task(job: Job, options: SkyOptions) -> str:
    """The task as YAML."""
    command = job.command(
        ["python3", "-m", "stash"], _FIRST_ADDRESS, '"$SKYPILOT_NODE_RANK"', ["--json"]
    )
    return task_of(job.name, job.nodes, options, f"{CARRIED} {command}\n")


def task_of(name: str, nodes: int, options: SkyOptions, run: str) -> str:
    """Any commands on rented nodes, as YAML."""
    resources = {
        "infra": options.infra,
        "instance_type": options.instance,
        "accelerators": options.accelerators,
        "use_spot": options.spot or None,
    }
    document = {
        "name": name,
        "num_nodes": nodes,
        "resources": {key: value for key, value in resources.items() if value is not None} or None,
        "workdir": None if options.workdir is None else str(options.workdir.absolute()),
        "setup": "\n".join(options.setup) or None,
        "run": run,
    }
    return as_yaml({key: value for key, value in document.items() if value is not None})


def submit(text: str, job: Job, *, wait: bool) -> str:
    """Rent a cluster and run the task; who waits gets its log, and the cluster is given back."""
    sky = required("sky", "SkyPilot")
    with tempfile.TemporaryDirectory(prefix="stash-sky-") as folder:
        path = Path(folder) / "task.yaml"
        path.write_text(text)
        command = [sky, "launch", "--yes", "--cluster", job.name]
        command += ["--down", str(path)] if wait else ["--detach-run", str(path)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as running:
            assert running.stdout is not None
            lines = []
            for line in running.stdout:
                lines.append(line)
                print(line, end="", file=sys.stderr)
    if running.returncode and not wait:
        raise StashError(f"sky launch ended with {running.returncode}; its words are above.")
    return "".join(lines)
