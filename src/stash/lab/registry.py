"""The labs of this machine: who owns which, what is left over, and how a lab is removed.

A lab is a unique name. It is written down before anything is made, and everything that is made
carries it: files of namespaces lie in its folder, groups have it in their names. So what a killed
owner left can be found and removed by the next start, and nothing else can be.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stash.errors import StashError, UsageError
from stash.lab import cgroups, interrupts, namespaces, processes
from stash.lab.processes import Process

ROOT = Path("/run/stash-lab")
RECORD = "lab.json"
#: A process that was just about to enter when its lab was removed has done so by then.
ENTERING_SECONDS = 0.05


@dataclass(frozen=True)
class Lab:
    """One lab as it is written down."""

    name: str
    created: str
    boot: str
    pid_namespace: int
    #: None: the lab stays until it is taken down.
    owner: Process | None
    #: What was asked for, for those who look at the lab from another process.
    parts: dict[str, Any] = field(default_factory=dict)
    root: Path = ROOT

    @property
    def folder(self) -> Path:
        """Files that hold namespaces, and the record."""
        return self.root / self.name

    @property
    def is_abandoned(self) -> bool:
        """Whether its owner is gone. Of a lab in another container nobody here can tell."""
        if self.boot != processes.boot_id():
            return True
        if self.owner is None or self.pid_namespace != processes.pid_namespace():
            return False
        return not self.owner.is_running()

    def with_part(self, name: str, asked: object) -> Lab:
        """The same lab; written down before the part is made."""
        changed = replace(self, parts={**self.parts, name: asked})
        changed.write()
        return changed

    def kept(self) -> Lab:
        """The same lab, complete, which now outlives the process that made it."""
        changed = replace(self, owner=None)
        changed.write()
        return changed

    def write(self) -> None:
        """Replace the record at once: a reader sees the old one or the new one."""
        text = json.dumps({k: v for k, v in asdict(self).items() if k != "root"}, indent=1)
        new = self.folder / f"{RECORD}.new"
        new.write_text(text)
        new.replace(self.folder / RECORD)

    def namespace(self, name: str) -> Path:
        """The file that holds a namespace of this lab."""
        return self.folder / f"{name}.net"

    def remove(self) -> None:
        """End its processes, then remove all that carries its name."""
        paths = list(self.folder.glob("*.net"))
        groups = cgroups.folders_of(self.name)
        with namespaces.held_open(paths) as identities:

            def members() -> set[int]:
                return namespaces.members(identities) | cgroups.members(groups)

            def end_members() -> None:
                processes.end_all(members)

            end_members()
            for path in paths:
                namespaces.remove(path)
            cgroups.remove(groups, end_members)
            time.sleep(ENTERING_SECONDS)
            end_members()
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def opened(root: Path = ROOT) -> Iterator[Lab]:
    """A lab that lives as long as this block, however the block ends, unless it has been kept."""
    process, made = os.getpid(), []
    with interrupts.unwinding():
        try:
            with interrupts.undisturbed():
                made.append(create(root))
            yield made[0]
        finally:
            # A process forked inside the block must not remove what is its parent's.
            if made and os.getpid() == process and not _is_kept(made[0]):
                # Locked: one that starts meanwhile must not meet a lab that is half removed.
                with interrupts.undisturbed(), _locked(root):
                    made[0].remove()


def create(root: Path = ROOT) -> Lab:
    """Remove what dead owners left, then write a new lab down. Nothing is made yet."""
    require_root()
    with _locked(root):
        _sweep(root)
        lab = Lab(
            name=f"{os.getpid()}-{secrets.token_hex(4)}",
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            boot=processes.boot_id(),
            pid_namespace=processes.pid_namespace(),
            owner=Process.this(),
            root=root,
        )
        lab.folder.mkdir()
        lab.write()
    return lab


def sweep(root: Path = ROOT) -> list[str]:
    """Remove what dead owners left; returns the names of their labs."""
    require_root()
    with _locked(root):
        return _sweep(root)


def take_down(name: str | None = None, root: Path = ROOT) -> list[str]:
    """Remove the lab of that name, or all that were kept; and what dead owners left."""
    require_root()
    with _locked(root):
        removed = _sweep(root)
        for lab in labs(root):
            if lab.owner is None and name in (None, lab.name):
                lab.remove()
                removed.append(lab.name)
            elif lab.name == name:
                raise StashError(f"Lab {name} belongs to a process that still runs: end that.")
    if name is not None and name not in removed:
        raise UsageError(f"There is no lab {name}; `stash lab list` tells which there are.")
    return removed


def labs(root: Path = ROOT) -> list[Lab]:
    """All that are written down, oldest first."""
    found = [_read(path) for path in root.glob(f"*/{RECORD}")] if root.is_dir() else []
    return sorted((lab for lab in found if lab is not None), key=lambda lab: lab.created)


def require_root() -> None:
    """The lab's links and limits are the kernel's."""
    if os.geteuid() != 0:
        raise StashError(
            "Links and limits of the lab need root: run this as root. "
            "The delays of `stash.lab.delays` need none."
        )


def _sweep(root: Path) -> list[str]:
    """Only under the lock: a folder without a record is then one whose maker was killed."""
    removed = []
    for folder in [path for path in root.iterdir() if path.is_dir()]:
        if not (folder / RECORD).exists():
            shutil.rmtree(folder)  # nothing is made before the record is there
            continue
        lab = _read(folder / RECORD)
        if lab is not None and lab.is_abandoned:
            with contextlib.suppress(StashError):  # `stash lab list` shows it; others may start
                lab.remove()
                removed.append(lab.name)
    return removed


def _is_kept(lab: Lab) -> bool:
    written = _read(lab.folder / RECORD)
    return written is not None and written.owner is None


def _read(path: Path) -> Lab | None:
    """None where it has gone meanwhile, or is not of this version's making."""
    try:
        document = json.loads(path.read_text())
        owner = document.pop("owner")
        root = path.parent.parent
        return Lab(**document, owner=None if owner is None else Process(**owner), root=root)
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One at a time; the kernel lets go of the lock of a process that is killed."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
