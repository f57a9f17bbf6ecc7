"""Who runs, and how the lab ends processes of its own: by handle, never by a number alone.

A handle (pidfd) is taken first and membership checked afterwards, so that a number that has gone to
another process in between is never signalled. This process and its ancestors are never ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from stash.errors import StashError

GRACE_SECONDS = 2.0
GIVE_UP_SECONDS = 20.0
POLL_SECONDS = 0.02

#: The processes that belong to something the lab made, at this moment.
Members = Callable[[], set[int]]


@dataclass(frozen=True)
class Process:
    """A process that can be told from a later one of the same number."""

    pid: int
    started_ticks: int

    @classmethod
    def this(cls) -> Process:
        """The process that asks."""
        return cls(os.getpid(), _started_ticks(os.getpid()) or 0)

    def is_running(self) -> bool:
        """Whether it still runs; one that has ended and waits to be collected does not."""
        return _started_ticks(self.pid) == self.started_ticks


def boot_id() -> str:
    """Changes with every start of the machine; numbers of processes mean nothing across it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> int:
    """Numbers of processes mean something only within it."""
    return os.stat("/proc/self/ns/pid").st_ino


def ancestry() -> set[int]:
    """This process and all that it descends from."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = int(_stat_fields(pid)[1])
    return found


def end_all(members: Members) -> None:
    """Ask all members to end; after a while, make them; raise where one stays.

    Asks again who is a member after every look, because members may start others.
    """
    began = time.monotonic()
    while found := members():
        if found & ancestry():
            raise StashError(
                "This command runs inside the lab that it should end; leave the lab first."
            )
        waited = time.monotonic() - began
        if waited > GIVE_UP_SECONDS:
            raise StashError(f"Processes {sorted(found)} of the lab do not end; look at them.")
        _signal(found, members, signal.SIGTERM if waited < GRACE_SECONDS else signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def _signal(pids: Iterable[int], members: Members, number: signal.Signals) -> None:
    with contextlib.ExitStack() as handles:
        held = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                held[pid] = os.pidfd_open(pid)
                handles.callback(os.close, held[pid])
        for pid in members() & set(held):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(held[pid], number)


def _started_ticks(pid: int) -> int | None:
    try:
        fields = _stat_fields(pid)
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _stat_fields(pid: int) -> list[str]:
    """From the third on; the second is the program's name in brackets and may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
