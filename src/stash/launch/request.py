"""What a user asks for. Quick to import: an agent is started with it alone (launch/early.py)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stash.hardware.machine import usable_cores
from stash.launch.placement import workers_told
from stash.launch.rendezvous import environment_of_all
from stash.launch.script import is_script

if TYPE_CHECKING:
    from stash.hardware.catalog import Instance


def _default_folder() -> Path:
    from stash.results.store import DEFAULT_FOLDER

    return DEFAULT_FOLDER


@dataclass(frozen=True, kw_only=True)
class Request:
    """One `stash profile`, in torchrun's own words where it has some."""

    workload: str  # a name in the zoo, `file.py:factory`, a script or a module
    is_module: bool = False
    script_arguments: tuple[str, ...] = ()
    nproc_per_node: int | None = None
    nnodes: int | None = None  # none: as a launcher around us says, or one
    node_rank: int | None = None
    rdzv_endpoint: str | None = None
    batch_size: int | str | None = None  # a number, `max`, or the workload's own default
    data: Path | None = None
    num_workers: int | None = None
    threads_per_worker: int | None = None
    device: str | None = None
    dtype: str | None = None  # fp32 for the zoo; a script decides by itself
    steps: tuple[str, ...] | None = None
    half_width: float = 0.03
    launches: int = 1
    max_minutes: float | None = 10.0
    max_rounds: int | None = None
    max_usd: float | None = None
    timeout_seconds: float = 300.0
    instance: str | None = None  # what kind of machine this is, in the catalog's words
    price_usd_per_hour: float | None = None  # none: the catalog's, of the instance
    seed: int = 0
    resume: Path | None = None  # a profile whose rounds are continued
    links: bool = False  # probe them, too, after the rounds
    keep_tracking: bool = False
    protect: tuple[Path, ...] = ()
    out: Path = field(default_factory=_default_folder)

    @property
    def machine_type(self) -> Instance | None:
        """The catalog's row of the instance; a name that it does not know is refused."""
        from stash.hardware import catalog

        return None if self.instance is None else catalog.find(self.instance)

    @property
    def hourly_usd(self) -> float | None:
        """The price of one machine, as given or as the catalog has it."""
        if self.price_usd_per_hour is not None or self.machine_type is None:
            return self.price_usd_per_hour
        return self.machine_type.price_usd_per_hour

    @property
    def workers_asked(self) -> int | None:
        """Of this node; none: as many as it has devices."""
        return self.nproc_per_node or workers_told(os.environ)

    def threads(self, workers: int) -> int | None:
        """Of each of so many workers; none: as its environment says, for any script."""
        if is_script(self):
            return None
        return self.threads_per_worker or max(1, usable_cores() // workers)


def expected_environment(request: Request) -> dict[str, str]:
    """Of all workers, as far as it can be known at once, without torch.

    It is what is prepared later (launch/prepare.py), but where GPUs are counted.
    """
    workers = request.workers_asked or usable_cores()
    return environment_of_all(os.environ, workers, request.threads(workers))
