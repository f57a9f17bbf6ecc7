"""Where this process stands among the nodes of a run: told by options, or by a launcher around it.

Knows the words of torchrun (PET_*), of Slurm's srun, and of Kubernetes' training operators.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from stash.errors import UsageError

LOOPBACK = "127.0.0.1"
#: For srun, which names none: below the ports that systems give out by themselves.
SLURM_PORTS = range(20000, 30000)
#: A controller that is busy answers within seconds.
SCONTROL_SECONDS = 10.0


class Asked(Protocol):
    """What a request for several nodes says, in torchrun's words."""

    @property
    def nnodes(self) -> int | None:
        """All of them."""

    @property
    def node_rank(self) -> int | None:
        """Which one this is."""

    @property
    def rdzv_endpoint(self) -> str | None:
        """Where they meet."""


@dataclass(frozen=True)
class Placement:
    """One node of a run, and where all of them meet."""

    nodes: int = 1
    node: int = 0
    host: str = LOOPBACK
    port: int = 0  # any that is free, where nobody else has to know it

    @property
    def leads(self) -> bool:
        """Whether this node collects what all measure."""
        return self.node == 0


def is_worker(environment: Mapping[str, str]) -> bool:
    """Whether a launcher has started this very process as one worker."""
    return all(name in environment for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))


def workers_told(environment: Mapping[str, str]) -> int | None:
    """Workers per node, where torchrun's variables tell a number."""
    text = environment.get("PET_NPROC_PER_NODE", "")
    return int(text) if text.isdigit() else None


def place(request: Asked, environment: Mapping[str, str]) -> Placement:
    """By the options, or else by the launcher's environment, or else this machine alone."""
    given = (request.nnodes, request.node_rank, request.rdzv_endpoint)
    if all(option is None for option in given):
        found = _torchrun(environment) or _slurm(environment) or _pods(environment)
        return found or Placement()
    nodes = 1 if request.nnodes is None else request.nnodes
    if nodes < 1:
        raise UsageError(f"--nnodes must be 1 or more, not {nodes}.")
    if nodes == 1:
        if request.node_rank not in (None, 0):
            raise UsageError(f"--node-rank {request.node_rank} needs --nnodes of 2 or more.")
        return Placement()
    if request.node_rank is None or request.rdzv_endpoint is None:
        raise UsageError(
            "Several nodes need --node-rank (0 on the first) and --rdzv-endpoint HOST:PORT, an "
            "address of the first node and a free port there. Run the same command on each."
        )
    return _checked(nodes, request.node_rank, *_endpoint(request.rdzv_endpoint))


def _checked(nodes: int, node: int, host: str, port: int) -> Placement:
    if not 0 <= node < nodes:
        raise UsageError(f"--node-rank {node}: {nodes} nodes are numbered 0 to {nodes - 1}.")
    return Placement(nodes, node, host, port)


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"--rdzv-endpoint is HOST:PORT such as 10.0.0.1:29400, not {text!r}.")
    return host, int(port)


def _torchrun(environment: Mapping[str, str]) -> Placement | None:
    """What Kubeflow's Trainer and others set for torchrun to read."""
    nodes = environment.get("PET_NNODES", "")
    least, _, most = nodes.partition(":")
    if most and most != least:
        raise UsageError(f"PET_NNODES is {nodes}: Stash needs a fixed number of nodes.")
    if not least.isdigit() or int(least) == 1:
        return None
    endpoint = environment.get("PET_RDZV_ENDPOINT") or ":".join(
        environment.get(name, "") for name in ("PET_MASTER_ADDR", "PET_MASTER_PORT")
    )
    return _checked(int(least), int(environment.get("PET_NODE_RANK", "0")), *_endpoint(endpoint))


def _slurm(environment: Mapping[str, str]) -> Placement | None:
    """One task on each node of a job step, as `srun --ntasks-per-node=1` starts them."""
    nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", nodes))
    if tasks != nodes:
        raise UsageError(
            f"This is one of {tasks} tasks on {nodes} node(s), and Stash starts the workers of a "
            "node by itself: use `srun --ntasks-per-node=1`, and --nproc-per-node for the number "
            "of workers. --nnodes 1 profiles this machine alone, whatever the step is."
        )
    if nodes == 1:
        return None
    first = _slurm_address(first_host(environment["SLURM_STEP_NODELIST"]), environment)
    job = int(environment.get("SLURM_JOB_ID", "0")) + int(environment.get("SLURM_STEP_ID", "0"))
    port = SLURM_PORTS[job % len(SLURM_PORTS)]
    return _checked(nodes, int(environment["SLURM_NODEID"]), first, port)


def _slurm_address(name: str, environment: Mapping[str, str]) -> str:
    """By which Slurm itself reaches a node, whose name need not be known to any resolver."""
    scontrol = shutil.which("scontrol", path=environment.get("PATH", ""))
    if scontrol is None:
        return name
    try:
        told = subprocess.run(
            [scontrol, "show", "node", name],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=SCONTROL_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return name
    found = re.search(r"\bNodeAddr=(\S+)", told)
    return name if found is None else found.group(1)


def first_host(names: str) -> str:
    """The first of Slurm's short list of hosts: `gpu[07-09,12],cpu1` begins with gpu07."""
    found = re.match(r"([^\[,]+)(?:\[(\w+)[^\]]*\]([^,\[]*))?", names)
    if found is None:
        raise UsageError(f"Slurm's list of nodes cannot be read: {names!r}.")
    return "".join(part or "" for part in found.groups())


def _pods(environment: Mapping[str, str]) -> Placement | None:
    """One pod a node, as Kubeflow's PyTorchJob numbers them; workers are ours to start."""
    told = all(name in environment for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"))
    if not told or is_worker(environment) or int(environment["WORLD_SIZE"]) == 1:
        return None
    endpoint = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
    nodes, node = int(environment["WORLD_SIZE"]), int(environment["RANK"])
    return _checked(nodes, node, *_endpoint(endpoint))
