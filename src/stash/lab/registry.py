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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stash.errors import StashError
from stash.lab import cgroups, interrupts, namespaces, processes
from stash.lab.processes import Process

ROOT = Path("/run/stash-lab")
RECORD = "lab.json"


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

    def members(self) -> set[int]:
        """The processes that run in this lab."""
        paths = [path for path in self.folder.iterdir() if path.suffix == ".net"]
        return namespaces.members(paths) | cgroups.members(cgroups.folders_of(self.name))

    def namespace(self, name: str) -> Path:
        """The file that holds a namespace of this lab."""
        return self.folder / f"{name}.net"

    def remove(self) -> None:
        """End its processes, then remove all that carries its name."""
        processes.end_all(self.members)
        for path in self.folder.glob("*.net"):
            namespaces.remove(path)
        cgroups.remove(cgroups.folders_of(self.name))
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def opened(root: Path = ROOT) -> Iterator[Lab]:
    """A lab that lives as long as this block, however the block ends."""
    process, made = os.getpid(), []
    with interrupts.unwinding():
        try:
            with interrupts.undisturbed():
                made.append(create(root))
            yield made[0]
        finally:
            # A process forked inside the block must not remove what is its parent's.
            if made and os.getpid() == process:
                with interrupts.undisturbed():
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
        lab = _read(folder / RECORD)
        if lab is None:
            shutil.rmtree(folder)  # nothing is made before the record is there
        elif lab.is_abandoned and not lab.members() & processes.ancestry():
            lab.remove()
            removed.append(lab.name)
    return removed


def _read(path: Path) -> Lab | None:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    owner = document.pop("owner")
    root = path.parent.parent
    return Lab(**document, owner=None if owner is None else Process(**owner), root=root)


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
