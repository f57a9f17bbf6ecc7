"""Starts the agent of a node before there is anything to run: importing torch takes it seconds.

It imports while we prepare, then waits at a pipe until it is told what to run, and ends where we
end without telling it anything. What it says meanwhile becomes the beginning of its log.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

from stash.engine.orphans import die_with_parent
from stash.launch.agent import Task

#: Of this thread: an agent ends with the thread that has started it.
_waiting: ContextVar[_Agent | None] = ContextVar("_waiting", default=None)


@contextlib.contextmanager
def starting_agent(environment: Mapping[str, str]) -> Iterator[None]:
    """The first launch inside finds an agent that has been started already.

    Where its workers are told the same environment, they can be forks of it. Inside another of
    these blocks, whose agent still waits, that one does.
    """
    if _waiting.get() is not None:
        yield
        return
    early = _Agent(environment)
    before = _waiting.set(early)
    try:
        yield
    finally:
        if _waiting.get() is early:
            early.dismiss()
        _waiting.reset(before)


def run_agent(task: Task, log: Path) -> subprocess.Popen[bytes]:
    """All workers of a task, by an agent that waits for it or by a new one."""
    agent = _waiting.get() or _Agent(task.environment)
    _waiting.set(None)
    try:
        return agent.run(task, log)
    except BaseException:  # no room for a log, or Ctrl-C: nobody would end it
        agent.dismiss()
        raise


class _Agent:
    """A process that imports what workers need, and then waits."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        reading, telling = _pipe()
        self._telling = os.fdopen(telling, "w")
        descriptor, name = tempfile.mkstemp(prefix="stash-agent-", suffix=".log")
        self._log = Path(name)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "stash.launch.agent", str(reading)],
                env=dict(environment),
                stdin=subprocess.DEVNULL if os.isatty(0) else None,  # ours is another session
                stdout=descriptor,
                stderr=descriptor,
                pass_fds=(reading,),
                start_new_session=True,  # Ctrl-C comes to us first; we end the gang in order
                preexec_fn=die_with_parent,
            )
        except BaseException:
            self._telling.close()
            self._log.unlink()
            raise
        finally:
            os.close(reading)
            os.close(descriptor)

    def run(self, task: Task, log: Path) -> subprocess.Popen[bytes]:
        """Tell it what to run, and put what it writes in place."""
        os.replace(self._log, log)
        # One that has died already is found by whoever waits for it.
        with contextlib.suppress(BrokenPipeError), self._telling as pipe:
            pipe.write(task.line())
        return self._process

    def dismiss(self) -> None:
        """Nothing is to be run after all."""
        self._process.kill()
        self._process.wait()
        self._log.unlink(missing_ok=True)
        with contextlib.suppress(BrokenPipeError):
            self._telling.close()


def _pipe() -> tuple[int, int]:
    """Two ends that are not standard output, also where that is closed."""
    ends = os.pipe()
    reading, telling = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    for end in ends:
        os.close(end)
    return reading, telling
