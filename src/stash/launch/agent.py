"""The process on a node that starts its workers, and ends all of them when one has failed.

Importing torch, and what every optimizer imports with it, takes seconds. This process does that
while its launcher still prepares, and its workers are forks of it, which begin at once. Where a
fork would not be the same as a new interpreter, they are new interpreters.

    python -u -m stash.launch.agent DESCRIPTOR    of a pipe that tells what to run (launch/early.py)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from stash.launch.garbage import collecting_later

#: In the folder of a launch: how workers ended, and a folder of logs for each of them.
ENDED = "ended.json"
LOGS = "logs"
#: For a worker that is asked to end.
GRACE_SECONDS = 5.0
#: Read when a group is made, not when a library is loaded.
READ_LATER = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
DEVICES = Path("/dev")
#: Their libraries may not survive a fork; it was never tried.
ACCELERATORS = ("nvidia[0-9]*", "nvidiactl", "kfd", "dxg", "accel*", "habanalabs*", "davinci*")


@dataclass(frozen=True)
class Task:
    """What an agent is to run: workers of the engine, and what each of them is told."""

    folder: str  # of the launch
    arguments: list[str]  # of stash.engine.host
    environment: dict[str, str]  # of all workers
    workers: list[dict[str, str]]  # variables of each
    cwd: str

    def line(self) -> str:
        """As it goes through the pipe."""
        return json.dumps(asdict(self)) + "\n"


def main() -> None:
    """Import what takes long, wait to be told what to run, and run it."""
    began_with = dict(os.environ)
    with collecting_later():
        _import()
    with os.fdopen(int(sys.argv[1]), encoding="utf-8") as pipe:
        told = pipe.readline()  # not all: a process forked meanwhile may hold the other end
    if not told:
        sys.exit(1)  # nobody is there any more
    task = Task(**json.loads(told))
    os.chdir(task.cwd)
    code = _run(task, forks=_may_fork(began_with, task.environment))
    os._exit(code)  # all that torch has imported would be taken apart first


def _import() -> None:
    """All that workers import before their script, and what torch leaves for the first optimizer.

    Nothing of the workloads: our own loop is run as a module, and is to be imported by that.
    """
    import torch._dynamo  # noqa: F401

    import stash.engine.host
    import stash.engine.seams
    import stash.engine.switchboard
    import stash.engine.trackers  # noqa: F401


def _may_fork(own: Mapping[str, str], workers: Mapping[str, str]) -> bool:
    """Whether a fork is the same as a new interpreter.

    Libraries read the environment while they are loaded, threads do not survive a fork, and
    libraries of accelerators need not.
    """
    return (
        sys.platform == "linux"
        and _loaded_with(own) == _loaded_with(workers)
        and _has_one_thread()
        and not any(found for name in ACCELERATORS for found in DEVICES.glob(name))
    )


def _has_one_thread() -> bool:
    """Once threads are gone that a library ends by itself before a fork, as OpenBLAS does."""
    trial = os.fork()
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    return len(os.listdir("/proc/self/task")) == 1


def _loaded_with(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in READ_LATER}


def _run(task: Task, *, forks: bool) -> int:
    """All workers until their end; 1 where one of them has failed, or where we were asked to end.

    In which order they ended is noted: others fail in turn where one is gone.
    """
    heard = {signal.SIGCHLD, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)  # they wait until we ask for them
    running: dict[int, int] = {}  # numbers by process
    ended: list[_Ended] = []
    asked = False
    try:
        for number in range(len(task.workers)):
            process = os.fork()
            if process == 0:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                _work(task, number, forks=forks)
            running[process] = number
        while running and not asked and not _failed(ended):
            asked = signal.sigwait(heard) == signal.SIGTERM
            ended += _reap(running)
    finally:  # a machine may have no room for another process
        ended += _end(running)
    if _failed(ended):
        _note(task, ended)
    return int(asked or _failed(ended))


class _Ended(NamedTuple):
    number: int  # of a worker
    code: int  # minus the signal that ended it, if one did


def _failed(ended: Sequence[_Ended]) -> bool:
    return any(one.code for one in ended)


def _reap(running: dict[int, int]) -> list[_Ended]:
    """Workers that have ended meanwhile."""
    ended = []
    while running:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            break
        if process in running:
            ended.append(_Ended(running.pop(process), os.waitstatus_to_exitcode(status)))
    return ended


def _end(running: dict[int, int]) -> list[_Ended]:
    """Those that still run, and what they have started; politely first.

    How they end after that is our own doing, and not told.
    """
    ended: list[_Ended] = []
    _signal_all(running, signal.SIGTERM)
    until = time.monotonic() + GRACE_SECONDS
    while running and time.monotonic() < until:
        time.sleep(0.02)
        ended += _reap(running)
    _signal_all(running, signal.SIGKILL)
    for process in running:
        os.waitpid(process, 0)
    return ended


def _signal_all(processes: Mapping[int, int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, number)


def _note(task: Task, ended: Sequence[_Ended]) -> None:
    told = [{"rank": int(task.workers[one.number]["RANK"]), "code": one.code} for one in ended]
    with contextlib.suppress(OSError):  # a disk may be full
        (Path(task.folder) / ENDED).write_text(json.dumps(told))


def _work(task: Task, number: int, *, forks: bool) -> NoReturn:
    """In the new process: become the worker. Never returns to what its parent was doing."""
    try:
        os.setsid()  # a group of its own, with all that it starts
        log = Path(task.folder) / LOGS / str(number)
        log.mkdir(parents=True)
        for descriptor, name in ((1, "stdout.log"), (2, "stderr.log")):
            opened = os.open(log / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.environ.clear()
        os.environ.update(task.environment)
        os.environ.update(task.workers[number])
        os.environ["TORCHELASTIC_ERROR_FILE"] = str(log / "error.json")
        if forks:
            _become_the_host(task)
        command = [sys.executable, "-u", "-m", "stash.engine.host", *task.arguments]
        os.execv(sys.executable, command)
    except BaseException as error:
        os._exit(_exit_code(error))


def _exit_code(error: BaseException) -> int:
    """As Python ends by it."""
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        return error.code or 0
    with contextlib.suppress(BaseException):
        traceback.print_exception(error)
    return 1


def _become_the_host(task: Task) -> NoReturn:
    """As `python -m stash.engine.host` is begun."""
    from stash.engine import host

    if "numpy" in sys.modules:  # Python's own numbers are drawn anew after a fork, these are not
        sys.modules["numpy"].random.seed()
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = task.cwd
    sys.argv = [host.__file__, *task.arguments]
    host.main()


if __name__ == "__main__":
    main()
