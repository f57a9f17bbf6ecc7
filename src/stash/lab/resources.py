"""Storage with a known read rate, and limits of cores, CPU time and memory, for own processes."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stash.errors import StashError, UsageError
from stash.lab import cgroups, registry, words
from stash.lab.cgroups import Group, Hierarchy

PERIOD_US = 100_000
GROUPS_VARIABLE = "STASH_LAB_GROUPS"


@dataclass(frozen=True)
class Limits:
    """What processes in a group may use; None leaves a thing as it is."""

    read_bytes_per_second: float | None = None
    #: The block device that the rate holds for, as major:minor.
    device: str | None = None
    cpus: float | None = None
    cores: tuple[int, ...] | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Resources:
    """Groups with the same limits: one, or one for each worker."""

    limits: Limits
    groups: tuple[Group, ...]

    @property
    def inside(self) -> list[str]:
        """In front of a command, these run it inside the (first) group."""
        return self.groups[0].words_to_enter()

    @property
    def environment(self) -> dict[str, str]:
        """Tells workers where their groups are: see `enter_own_group`."""
        folders = [[str(folder) for folder in group.folders] for group in self.groups]
        return {GROUPS_VARIABLE: json.dumps(folders)}


def enter_own_group() -> None:
    """Move this worker into the group of its local rank, with the loader workers it starts later.

    Two readers in one group share its rate unevenly; with groups of their own each has the rate.
    """
    groups = json.loads(os.environ[GROUPS_VARIABLE])
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if rank >= len(groups):
        raise StashError(f"Worker {rank} has no group: the lab made {len(groups)} (`workers=`).")
    Group(tuple(Path(folder) for folder in groups[rank])).enter()


@contextlib.contextmanager
def storage(folder: Path, rate: str, *, workers: int = 1) -> Iterator[Resources]:
    """Reads from the block device under a folder take as long as at this rate (`20MB/s`).

    The rate holds for each of `workers` groups on its own.
    """
    limits = Limits(read_bytes_per_second=words.bytes_per_second(rate), device=device_of(folder))
    with restricted(limits, workers=workers) as resources:
        yield resources


@contextlib.contextmanager
def limits(
    *, cpus: float | None = None, cores: Iterable[int] | None = None, memory: str | None = None
) -> Iterator[Resources]:
    """At most so many CPUs' time, only these cores, at most so much memory (`2GiB`)."""
    asked = Limits(
        cpus=cpus,
        cores=None if cores is None else tuple(sorted(cores)),
        memory_bytes=words.byte_count(memory) if memory else None,
    )
    with restricted(asked) as resources:
        yield resources


@contextlib.contextmanager
def restricted(limits: Limits, *, workers: int = 1) -> Iterator[Resources]:
    """Any of these limits together, in one group or in one for each worker."""
    with registry.opened() as lab:
        yield build(lab, limits, workers)


def build(lab: registry.Lab, limits: Limits, workers: int = 1) -> Resources:
    """The groups of a lab that is written down already."""
    settings = _settings(limits)
    if not settings:
        raise UsageError("Name at least one limit: a read rate, CPUs, cores or memory.")
    if workers < 1:
        raise UsageError(f"--workers must be 1 or more, not {workers}.")
    groups = (cgroups.create(lab.name, f"worker{rank}", settings) for rank in range(workers))
    return Resources(limits, tuple(groups))


def resources_of(lab: registry.Lab, limits: Limits) -> Resources:
    """The groups that a lab has."""
    by_worker: dict[str, list[Path]] = {}
    for folder in cgroups.folders_of(lab.name):
        by_worker.setdefault(folder.name.rpartition(".")[2], []).append(folder)
    return Resources(limits, tuple(Group(tuple(found)) for _, found in sorted(by_worker.items())))


def device_of(folder: Path) -> str:
    """The disk that really holds a folder, as major:minor."""
    try:
        number = os.stat(folder).st_dev
    except OSError as error:
        raise UsageError(f"Cannot look at {folder}: {error.strerror}.") from None
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        device = _device_of_mount(folder)
    if (device / "partition").exists():  # rates are a disk's, not a partition's
        device = device.resolve().parent
    return (device / "dev").read_text().strip()


def _device_of_mount(folder: Path) -> Path:
    """File systems with device numbers of their own (btrfs) name their disk in the mount table."""
    place = folder.resolve()
    best, source = Path(), ""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount = Path(line.split()[4])
        if place.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, source = mount, line.partition(" - ")[2].split()[1]
    with contextlib.suppress(OSError):
        number = os.stat(source).st_rdev
        if source.startswith("/dev/") and number:
            return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    raise UsageError(
        f"{folder} lies on no disk of its own (it is on {source or 'nothing known'}), so its read "
        "rate cannot be limited; choose a folder on a disk."
    )


def _settings(limits: Limits) -> dict[Hierarchy, dict[str, str]]:
    """What to write where, in the words of whichever version the machine has."""
    settings: dict[Hierarchy, dict[str, str]] = {}

    def add(name_v1: str, v1: Mapping[str, str], name_v2: str, v2: Mapping[str, str]) -> None:
        hierarchy = cgroups.hierarchy_of(name_v1, name_v2)
        settings.setdefault(hierarchy, {}).update(v1 if hierarchy.version == 1 else v2)

    if limits.read_bytes_per_second is not None:
        rate = round(limits.read_bytes_per_second)
        v1 = {"blkio.throttle.read_bps_device": f"{limits.device} {rate}"}
        add("blkio", v1, "io", {"io.max": f"{limits.device} rbps={rate}"})
    if limits.cpus is not None:
        if not 0 < limits.cpus < math.inf:  # a negative quota would be none at all
            raise UsageError(f"{limits.cpus:g} CPUs is no limit; it must be more than zero.")
        quota = round(limits.cpus * PERIOD_US)
        v1 = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
        add("cpu", v1, "cpu", {"cpu.max": f"{quota} {PERIOD_US}"})
    if limits.cores is not None:
        cores = ",".join(map(str, limits.cores))
        v1 = {"cpuset.cpus": cores, "cpuset.mems": _memory_nodes()}
        add("cpuset", v1, "cpuset", {"cpuset.cpus": cores})
    if limits.memory_bytes is not None:
        v1 = {"memory.limit_in_bytes": str(limits.memory_bytes)}
        add("memory", v1, "memory", {"memory.max": str(limits.memory_bytes)})
    return settings


def _memory_nodes() -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Mems_allowed_list:"):
            return line.partition(":")[2].strip()
    return "0"
