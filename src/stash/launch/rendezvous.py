"""Where the workers of a launch meet: a store of ours, and the variables that lead them there.

torchrun's own rendezvous opens a store that listens on all interfaces. Ours listens on the one
address that was given, and the launching process keeps it. Workers are told of it in torchrun's
words, which training scripts know.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True)
class Point:
    """Where the workers of all nodes meet, and which node this is."""

    nodes: int
    node: int
    host: str
    port: int
    interface: str | None = None  # that leads to the other nodes


def open_store(host: str, timeout_seconds: float) -> tuple[Any, int]:
    """A store that listens on this address alone, and the port that it was given."""
    import torch.distributed as dist

    c10d: Any = dist  # typed in part only
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.bind(address)
    listening.listen()
    port = listening.getsockname()[1]
    store = c10d.TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_seconds),
        master_listen_fd=listening.detach(),
        use_libuv=False,  # the other kind takes no socket in older releases (2.6)
    )
    return store, port


def environment_of_all(
    found: Mapping[str, str], workers: int, threads: int | None
) -> dict[str, str]:
    """What all workers of this node find: what we have found, and how many threads each may have.

    Without the variables of a launcher around us. A script that nobody has told a number of threads
    gets one for each of several workers, as from torchrun.
    """
    told = {name: value for name, value in found.items() if not name.startswith("PET_")}
    if threads is not None:
        told["OMP_NUM_THREADS"] = str(threads)
    elif workers > 1:
        told.setdefault("OMP_NUM_THREADS", "1")
    told.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    return told


def variables(point: Point, workers: int, number: int) -> dict[str, str]:
    """What torchrun would tell one of this node's workers."""
    rank, size = point.node * workers + number, point.nodes * workers
    told = {
        "RANK": rank,
        "LOCAL_RANK": number,
        "GROUP_RANK": point.node,
        "ROLE_RANK": rank,
        "ROLE_NAME": "default",
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": workers,
        "GROUP_WORLD_SIZE": point.nodes,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": point.host,
        "MASTER_PORT": point.port,
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_USE_AGENT_STORE": True,  # nobody opens another one
    }
    return {name: str(value) for name, value in told.items()}
