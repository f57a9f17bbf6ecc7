"""Starts the agent of a node before there is anything to run: importing torch takes it seconds.

It imports while we prepare, then waits at a pipe until it is told what to run, and ends where we
end without telling it anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stash.engine.host import die_with_parent

_waiting: list[_Agent] = []


@contextlib.contextmanager
def starting_agent() -> Iterator[None]:
    """The first launch inside finds an agent that has been started already."""
    early = _Agent()
    _waiting.append(early)
    try:
        yield
    finally:
        if early in _waiting:
            _waiting.remove(early)
            early.dismiss()


def run_agent(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """torchrun with these arguments, in an agent that waits for them or in a new one."""
    agent = _waiting.pop() if _waiting else _Agent()
    return agent.run(arguments, environment, log)


class _Agent:
    """A process that imports torchrun and then waits."""

    def __init__(self) -> None:
        reading, self._telling = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stash.launch.agent", str(reading)],
                stdin=subprocess.DEVNULL if os.isatty(0) else None,  # ours is another session
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(reading,),
                start_new_session=True,  # Ctrl-C comes to us first; we end the gang in order
                preexec_fn=die_with_parent,
            )
        finally:
            os.close(reading)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """Tell it what to run and where to write."""
        try:
            log.touch()
        except OSError:  # no room for it
            self.dismiss()
            raise
        told = {"arguments": list(arguments), "environment": dict(environment), "log": str(log)}
        # One that has died already is found by whoever waits for it.
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._telling, "w") as pipe:
            json.dump(told, pipe)
        return self._process

    def dismiss(self) -> None:
        """Nothing is to be run after all."""
        os.close(self._telling)
        self._process.kill()
        self._process.wait()
