"""Control groups of the lab's own, in whichever version of them the machine has.

A group is a folder of one name in every hierarchy that it needs. Limits are written before the
first process enters, and only processes that the lab started, or that ask for it, ever do.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stash.errors import StashError

MOUNTS = Path("/proc/self/mountinfo")
PREFIX = "stash-lab-"
REMOVE_SECONDS = 10.0


@dataclass(frozen=True)
class Hierarchy:
    """A tree of groups that the kernel shows."""

    path: Path
    version: int
    controllers: frozenset[str]


def hierarchies() -> Iterator[Hierarchy]:
    """All that are mounted."""
    for line in MOUNTS.read_text().splitlines():
        place, _, source = line.partition(" - ")
        path, kind = Path(place.split()[4]), source.split()[0]
        if kind == "cgroup":
            yield Hierarchy(path, 1, frozenset(source.split()[-1].split(",")))
        elif kind == "cgroup2":
            with contextlib.suppress(OSError):
                names = (path / "cgroup.controllers").read_text().split()
                yield Hierarchy(path, 2, frozenset(names))


def hierarchy_of(name_v1: str, name_v2: str) -> Hierarchy:
    """Where a controller lives, under the name that each version has for it."""
    for one in hierarchies():
        if (name_v1 if one.version == 1 else name_v2) in one.controllers:
            if one.version == 2:
                _check_enabled(one, name_v2)
            return one
    raise StashError(
        f"This machine has no control groups for `{name_v1}` (version 1) or `{name_v2}` "
        "(version 2), so the lab cannot limit that here."
    )


def _check_enabled(hierarchy: Hierarchy, controller: str) -> None:
    """Switching a controller on would touch every other group, so that is left to the user."""
    switch = hierarchy.path / "cgroup.subtree_control"
    if controller not in switch.read_text().split():
        raise StashError(
            f"The controller `{controller}` is not on for groups below {hierarchy.path}. "
            f"As root: echo +{controller} > {switch}"
        )


@dataclass(frozen=True)
class Group:
    """One group: its folder in each hierarchy."""

    folders: tuple[Path, ...]

    def enter(self) -> None:
        """Move the process that calls this into the group, with all that it starts later."""
        for folder in self.folders:
            _write(folder / "cgroup.procs", str(os.getpid()))

    def words_to_enter(self) -> list[str]:
        """In front of a command, these run it inside the group."""
        moves = [f"echo $$ > {shlex.quote(str(f / 'cgroup.procs'))}" for f in self.folders]
        return ["/bin/sh", "-c", " && ".join([*moves, 'exec "$@"']), "sh"]


def create(lab: str, part: str, settings: Mapping[Hierarchy, Mapping[str, str]]) -> Group:
    """A group with its limits, still empty."""
    folders = []
    for hierarchy, values in settings.items():
        folder = hierarchy.path / f"{PREFIX}{lab}.{part}"
        try:
            folder.mkdir()
        except OSError as error:
            raise StashError(f"Cannot make the group {folder}: {error.strerror}.") from None
        folders.append(folder)
        for name, value in values.items():
            _write(folder / name, value)
    return Group(tuple(folders))


def folders_of(lab: str) -> list[Path]:
    """The folders of all groups of a lab: those that carry its name."""
    return [
        folder
        for hierarchy in hierarchies()
        for folder in sorted(hierarchy.path.glob(f"{PREFIX}{lab}.*"))
    ]


def members(folders: list[Path]) -> set[int]:
    """The processes that are in any of these groups."""
    found: set[int] = set()
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            found |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
    return found - {0}  # how processes of another container are shown


def remove(folders: list[Path], end_members: Callable[[], None]) -> None:
    """Remove groups. The kernel takes a moment after the last process, and one may yet enter."""
    deadline = time.monotonic() + REMOVE_SECONDS
    for folder in folders:
        while folder.exists():
            try:
                folder.rmdir()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise StashError(f"Cannot remove the group {folder}: {error}.") from error
                end_members()
                time.sleep(0.02)


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise StashError(f"Cannot write {value!r} to {path}: {error}.") from error
