"""Starts commands and workers for tests, and finds what they leave behind.

Importing torch takes seconds, so whatever can be is forked from a server that has done it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

TINY = Path(__file__).parent.parent / "workloads_for_tests" / "tiny.py"
STASH = Path(sys.executable).parent / "stash"

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["stash.launch.api", "stash.engine.seams", "stash.workloads.train", "torch._dynamo"]
)


@dataclass
class Running:
    """A process with its output in files."""

    process: Any
    out: Path
    err: Path

    def wait(self, seconds: float = 60) -> int:
        """Its exit code; minus the signal where one ended it."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            pytest.fail(f"still running after {seconds} s:\n{self.output}{self.errors}")
        return int(self.process.exitcode)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    @property
    def output(self) -> str:
        return self.out.read_text()

    @property
    def errors(self) -> str:
        return self.err.read_text()

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Until it has told so on standard error."""
        until(lambda: text in self.errors or not self.process.is_alive(), seconds)
        assert text in self.errors, self.errors + self.output


def start_stash(folder: Path, *arguments: object) -> Running:
    """`stash ARGUMENTS`, with temporary files in a folder of its own."""
    given = [str(argument) for argument in arguments]
    return start(_run_stash, given, folder=folder, environment={"TMPDIR": str(folder)})


def start(
    target: Callable[..., None],
    *arguments: Any,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Running:
    """Run a function in a process of its own, whose output goes to files in the folder."""
    count = len(list(folder.glob("*.out")))
    out, err = folder / f"{count}.out", folder / f"{count}.err"
    out.touch()
    err.touch()
    process = _SERVER.Process(
        target=_redirected, args=(target, arguments, out, err, dict(environment or {}))
    )
    process.start()
    return Running(process, out, err)


def _redirected(
    target: Callable[..., None],
    arguments: tuple[Any, ...],
    out: Path,
    err: Path,
    environment: dict[str, str],
) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.update(environment)
    tempfile.tempdir = None  # asked for again, now that TMPDIR may be another
    multiprocessing.set_start_method(None, force=True)  # how we were started is not handed on
    target(*arguments)


def _run_stash(arguments: list[str]) -> None:
    from stash.cli.main import main

    code = main(arguments)
    sys.stdout.flush()
    os._exit(code)


def until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait for something; whether it came."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.05)
    return is_so()


def processes_of(folder: Path) -> list[psutil.Process]:
    """Agents, workers and loader workers of runs whose temporary files lie in this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            told = [*process.cmdline(), process.environ().get("TMPDIR", "")]
            if process.pid != os.getpid() and str(folder) in " ".join(told):
                found.append(process)
    return found


def assert_no_orphans(folder: Path, seconds: float = 10) -> None:
    """Nothing of a run is left, after a few seconds of grace."""
    until(lambda: not processes_of(folder), seconds)
    left = [" ".join(process.cmdline()) for process in processes_of(folder)]
    assert not left, left


def heartbeat_pid(folder: Path, rank: int) -> int:
    """The process of one worker, as its own heartbeat tells."""
    (beat,) = folder.glob(f"stash-run-*/launch-0/heartbeat-{rank}")
    return int(beat.read_text().split()[0])


@contextlib.contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Runs of this process put their plans there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield
