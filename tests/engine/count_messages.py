"""One worker of the built-in loop on the engine; prints the collectives of an iteration."""

from __future__ import annotations

import collections
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main(trap: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    from stash.engine import exchange, seams
    from stash.engine.plan import Plan
    from stash.engine.switchboard import Switchboard
    from stash.workloads import train

    sent: collections.Counter[str] = collections.Counter()
    counts: list[dict[str, int]] = []

    class Counted:
        """The real group, with every collective counted."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._inner, name)

            def call(*args: Any, **kwargs: Any) -> Any:
                sent[name] += 1
                return method(*args, **kwargs)

            return call

    real = exchange._real_group
    exchange._real_group = lambda *args: Counted(real(*args))  # type: ignore[assignment]

    folder = Path(tempfile.mkdtemp(prefix="stash-messages-"))
    board = Switchboard(Plan(steps=("node",), workload="trap"), folder, DataLoader.__iter__)
    seams.install(board)

    def story() -> Iterator[None]:
        while len(counts) < 6:
            counts.append(dict(sent))
            sent.clear()
            yield

    def step_ended(optimizer: torch.optim.Optimizer) -> None:
        if trap == "metrics":
            for _ in range(3):
                dist.all_reduce(torch.zeros(1))
        next(told)

    told = story()
    board.step_ended = step_ended  # type: ignore[method-assign]
    wrapped: list[DistributedDataParallel] = []
    original = DistributedDataParallel.__init__

    def remember(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        if trap == "message per tensor":
            kwargs["bucket_cap_mb"] = 1e-6
        original(self, module, *args, **kwargs)
        wrapped.append(self)

    DistributedDataParallel.__init__ = remember  # type: ignore[method-assign]
    factory = str(Path(__file__).with_name("small_workload.py")) + ":small"
    train.main([factory, "--num-workers", "0", "--iterations", "5"])
    sizes = wrapped[0]._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    print(
        json.dumps(
            {
                "sent": counts[4],
                "buckets": len(str(sizes).split(",")),
                "tensors": len(list(wrapped[0].parameters())),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
