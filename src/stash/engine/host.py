"""Runs an unchanged training script on the engine: one worker, from start to end.

    python -m stash.engine.host --plan PLAN SCRIPT.py ARGUMENTS      (as the launcher does)
    torchrun ... -m stash.engine.host [OPTIONS] SCRIPT.py ARGUMENTS  (a launch line of your own)

Installs the seams, runs the script as Python would, and tells how it ended: by the measurement's
own end, by an error in the script, or before anything was measured.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import faulthandler
import json
import os
import runpy
import signal
import sys
import sysconfig
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import psutil

from stash.engine.direct import Direct, Terminated, add_options, say
from stash.engine.forks import wait_before_forks
from stash.engine.orphans import die_with_parent
from stash.engine.plan import Plan
from stash.errors import StashError
from stash.hardware.machine import this_machine

#: By it the launcher asks a worker where it is. Scripts have handlers of their own for SIGUSR1 and
#: SIGUSR2, such as Slurm's warning before a job ends.
WHERE_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGUSR1)
#: Code that is not the script's own.
LIBRARIES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")),
    str(Path(__file__).parent.parent),
    "<",
)


def main() -> NoReturn:
    """One worker, from start to end."""
    options = _parse(sys.argv[1:])
    try:
        direct = None if options.plan is not None else Direct.start(options)
    except StashError as error:
        say(f"stash: {error.message}")
        sys.exit(error.exit_code)
    plan = Plan.load(options.plan) if direct is None else direct.plan
    run_folder = options.plan.parent if direct is None else direct.run_folder
    work(plan, run_folder, direct, options.is_module, options.arguments)


def work(
    plan: Plan, run_folder: Path, direct: Direct | None, is_module: bool, arguments: list[str]
) -> NoReturn:
    """Run a script, or a module, as the one worker that this process is."""
    die_with_parent()
    wait_before_forks()
    faulthandler.register(WHERE_SIGNAL, all_threads=False)
    cores = this_machine().cores
    if plan.pin_cores:
        _pin(cores)
    worker = _Worker(plan, run_folder, direct)
    if plan.links is not None:
        worker.probe_links()
    worker.run(is_module, arguments)


class _Worker:
    """Runs the script, and leaves when the measurement is done or cannot go on."""

    def __init__(self, plan: Plan, run_folder: Path, direct: Direct | None) -> None:
        self._plan = plan
        self._run_folder = run_folder
        self._direct = direct
        self._process = os.getpid()
        self._ending = threading.RLock()  # kept: a hang and a signal may come at once

    def run(self, is_module: bool, arguments: list[str]) -> NoReturn:
        """As Python would run it; a script that comes to its end by itself was too short."""
        from torch.utils.data import DataLoader

        from stash.engine import seams, trackers
        from stash.engine.switchboard import Switchboard
        from stash.workloads import torchvision_ops

        torchvision_ops.install_import_hook()
        if not self._plan.keep_tracking:
            trackers.switch_off(self._run_folder)
        self._switchboard = Switchboard(
            self._plan,
            self._run_folder,
            DataLoader.__iter__,
            leave=self._leave,
            on_hang=None if self._direct is None else self._hang,
        )
        seams.install(self._switchboard)
        try:
            _run_script(is_module, arguments)
        except SystemExit as ended:
            if os.getpid() != self._process:
                raise  # a process that the script has forked ends in its own way
            code, far = ended.code, self._how_far()
            harmless = repr(code) if code is None or isinstance(code, int) else "..."
            self._fail(
                f"the script called sys.exit({harmless}), {far}",
                quoting=f"the script called sys.exit({code!r}), {far}",
            )
        except BaseException as error:
            if os.getpid() != self._process:
                raise
            self._leave(error)
        self._fail(f"the script ended before the measurement was done, {self._how_far()}")

    def probe_links(self) -> NoReturn:
        """No script: the links themselves are measured."""
        from stash.engine import links

        try:
            links.probe(self._plan, self._run_folder)
        except BaseException as error:
            self._leave(error)
        self._end(0, None)

    def _how_far(self) -> str:
        steps = self._switchboard.steps
        if not steps:
            return "without a single optimizer step, which is what ends an iteration"
        return f"after {steps} optimizer steps: give it more epochs or iterations by its own flags"

    def _leave(self, error: BaseException | None) -> NoReturn:
        """At once, from wherever the script is: no `finally` of its own saves a checkpoint."""
        if error is None:
            self._end(0, None)
        if isinstance(error, StashError | Terminated):
            self._fail(str(error))
        text = "".join(traceback.format_exception(error))
        with contextlib.suppress(Exception):  # as in `say`
            print(text, file=sys.stderr)
        kind = type(error).__name__
        self._fail(f"{kind}{_place_of(error)}", quoting=f"{kind}: {error}", detail=text)

    def _hang(self, silent_seconds: float, doing: str) -> NoReturn:
        """From a thread beside the script, which may be deep in a library and not come back."""
        stack = sys._current_frames().get(threading.main_thread().ident or 0)
        frames = "".join(traceback.format_stack(stack))
        say(f"stash: This worker is here, innermost last:\n{frames}")
        self._fail(
            f"it has not moved on in `{doing}` for {silent_seconds:.0f} s (--timeout). It hangs, "
            "or waits for a worker that hangs or whose link is cut: look at what every worker "
            "says. Where iterations take longer, use a longer --timeout"
        )

    def _fail(self, message: str, *, quoting: str = "", detail: str = "") -> NoReturn:
        """Tell the launcher; it names the worker and shows its last lines.

        The message goes into documents. What the script says itself may hold secrets: only the
        terminal and the logs quote it.
        """
        rank = os.environ.get("RANK", "0")
        message = message.rstrip(".")
        quoting = quoting.rstrip(".") or message
        error = {
            "rank": int(rank),
            "message": message[:4000],
            "quoting": quoting[:4000],
            "traceback": detail[-20000:],
        }
        with contextlib.suppress(OSError):
            (self._run_folder / f"error-{rank}.json").write_text(json.dumps(error))
        self._end(1, f"Worker {rank} failed: {message}.", f"Worker {rank} failed: {quoting}.")

    def _end(self, code: int, failure: str | None, quoting: str | None = None) -> NoReturn:
        self._ending.acquire()
        if threading.current_thread() is threading.main_thread():  # which may hold locks of these
            with contextlib.suppress(Exception):
                self._switchboard.close()
        _end_children()
        if self._direct is not None:
            self._direct.end(failure, quoting)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # as in `say`
                stream.flush()
        os._exit(code)  # a script ended in the middle has threads and groups that wait for more


def _place_of(error: BaseException) -> str:
    """The script's own line that led to an error, or else the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    return "".join(f" at {Path(one.filename).name}:{one.lineno}" for one in (own or frames)[-1:])


def _run_script(is_module: bool, words: list[str]) -> None:
    script, *arguments = words
    sys.argv = [script, *arguments]
    if is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        # Python puts the script's folder first; for `-m`, which runs us, it was the working folder.
        if sys.path and Path(sys.path[0]).resolve() == Path.cwd():
            del sys.path[0]
        sys.path.insert(0, str(Path(script).resolve().parent))
        _run_file(Path(script).absolute())


def _run_file(path: Path) -> None:
    """As Python runs a script. Unlike with runpy, `__file__` holds after a change of folder."""
    main_module = ModuleType("__main__")
    main_module.__dict__.update(__file__=str(path), __builtins__=builtins)
    sys.modules["__main__"] = main_module
    exec(compile(path.read_bytes(), str(path), "exec"), main_module.__dict__)


def _pin(usable: int) -> None:
    """Give this worker its own cores: equal shares, in order of local rank.

    Not under a quota: it grants time, not cores, and other containers would choose the same ones.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > usable:
        return
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    share = len(cores) // workers
    first = int(os.environ.get("LOCAL_RANK", "0")) * share
    if share:
        os.sched_setaffinity(0, cores[first : first + share])


def _end_children() -> None:
    """Loader workers that the script left behind are ours to end: they are our own children."""
    with contextlib.suppress(ValueError):  # not in the main thread, where alone it would raise
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch raises when a loader worker dies
    with contextlib.suppress(psutil.Error):
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        psutil.wait_procs(children, timeout=5)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stash.engine.host", description=__doc__.split("\n")[0])
    parser.add_argument("--plan", type=Path, help="written by `stash profile`")
    add_options(parser)
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="SCRIPT ...")
    options = parser.parse_args(arguments)
    if not options.arguments and options.plan is None:
        parser.error("name the script to run, or a module after -m")
    return options


if __name__ == "__main__":
    main()
