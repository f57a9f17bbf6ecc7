"""Network namespaces that are held by a file of the lab's own, and nothing else.

They are made and entered in a thread, because a thread has a namespace of its own on Linux: no
process has to be started, and none can be left half-way.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from stash.errors import StashError

CLONE_NEWNET = 0x40000000
MS_BIND = 4096
MNT_DETACH = 2
OWN = "/proc/thread-self/ns/net"

T = TypeVar("T")


def create(path: Path) -> None:
    """A new namespace, held by a file."""
    path.touch(exist_ok=False)

    def make() -> None:
        _call("unshare", CLONE_NEWNET)
        _call("mount", OWN.encode(), os.fsencode(path), None, MS_BIND, None)

    _in_thread(make)


def remove(path: Path) -> None:
    """Let go of a namespace; the kernel removes it, and its links, with its last process."""
    while is_held(path):
        _call("umount2", os.fsencode(path), MNT_DETACH)
    path.unlink(missing_ok=True)


def is_held(path: Path) -> bool:
    """Whether a namespace is bound to the file, rather than the file being an empty one."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(
        line.split()[4] == str(path) and line.partition(" - ")[2].startswith("nsfs ")
        for line in mounts
    )


def inside(path: Path, function: Callable[[], T]) -> T:
    """What a function returns when it runs inside the namespace, with all that it starts."""

    def enter_and_call() -> T:
        with path.open("rb") as file:
            _call("setns", file.fileno(), CLONE_NEWNET)
        return function()

    return _in_thread(enter_and_call)


def words_to_enter(path: Path) -> list[str]:
    """In front of a command, these run it inside the namespace."""
    return ["nsenter", f"--net={path}", "--"]


def members(paths: Iterable[Path]) -> set[int]:
    """The processes that run inside any of these namespaces."""
    wanted = {_identity(path) for path in paths if is_held(path)}
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if _identity(entry / "ns/net") in wanted:
                    found.add(int(entry.name))
    return found


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _in_thread(function: Callable[[], T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="stash-lab")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _call(name: str, *arguments: object) -> None:
    """A system call by way of the C library; Python has these only from 3.12 on, or not at all."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise StashError(
            f"The lab needs root and the right to make namespaces: {name} failed "
            f"({os.strerror(number)}). In a container, allow CAP_SYS_ADMIN and CAP_NET_ADMIN."
        )
