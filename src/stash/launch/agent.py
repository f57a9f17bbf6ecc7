"""torchrun with a rendezvous of our own: every agent is a client of a store that stands already.

torchrun's own rendezvous opens a store that listens on all interfaces; ours listens on the one
address that was given (`open_store`), and the launching process keeps it.

    python -m stash.launch.agent DESCRIPTOR       of a pipe that tells what to run (launch/early.py)
"""

from __future__ import annotations

import json
import os
import socket
import sys
from datetime import timedelta
from typing import Any

BACKEND = "stash"


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


def main() -> None:
    """Import what takes long, wait to be told what to run, and run it."""
    import torch.distributed.run  # noqa: F401

    with os.fdopen(int(sys.argv[1]), encoding="utf-8") as pipe:
        told = pipe.readline()  # not all: a process forked meanwhile may hold the other end
    if not told:
        sys.exit(1)  # nobody is there any more
    _become(**json.loads(told))
    _torchrun()


def _become(arguments: list[str], environment: dict[str, str], cwd: str) -> None:
    """The process that would have been started now, with all this."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments


def _torchrun() -> None:
    """It must know our rendezvous first."""
    import torch.distributed as dist
    from torch.distributed.elastic.rendezvous import (
        RendezvousParameters,
        rendezvous_handler_registry,
    )
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
    from torch.distributed.run import main as torchrun

    c10d: Any = dist  # typed in part only

    class Client(StaticTCPRendezvous):
        """As torchrun's static rendezvous, but no agent keeps the store."""

        def get_backend(self) -> str:
            return BACKEND

        def next_rendezvous(self) -> Any:
            self._store = c10d.TCPStore(
                self.master_addr, self.master_port, is_master=False, timeout=self.timeout
            )
            return super().next_rendezvous()

    def create(parameters: RendezvousParameters) -> Client:
        host, _, port = parameters.endpoint.rpartition(":")
        return Client(
            host,
            int(port),
            int(parameters.config["rank"]),
            parameters.max_nodes,
            parameters.run_id,
            int(parameters.config["timeout"]),
        )

    rendezvous_handler_registry.register(BACKEND, create)
    torchrun()


if __name__ == "__main__":
    main()
