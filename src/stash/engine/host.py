"""Runs an unchanged training script on the engine: `python -m stash.engine.host --plan P x.py`.

Pins the worker, installs the seams, runs the script as Python would, and tells the launcher how it
ended: by the measurement's own end, by an error in the script, or before anything was measured.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import ctypes
import faulthandler
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType

import psutil

from stash.engine.plan import Plan
from stash.errors import StashError
from stash.hardware.machine import this_machine

PR_SET_PDEATHSIG = 1


def main() -> int:
    """One worker, from start to end."""
    options = _parse(sys.argv[1:])
    plan = Plan.load(options.plan)
    die_with_parent()
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # the launcher asks: where are you?
    cores = this_machine().cores
    if plan.pin_cores:
        _pin(cores)
    code = _run(plan, options.plan.parent, options)
    _end_children()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a script ended in the middle has threads and groups that would wait for more


def die_with_parent() -> None:
    """No worker outlives the process that started it, however that ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _run(plan: Plan, run_folder: Path, options: argparse.Namespace) -> int:
    from torch.utils.data import DataLoader

    from stash.engine import seams
    from stash.engine.switchboard import MeasurementDone, Switchboard
    from stash.workloads import torchvision_ops

    torchvision_ops.install_import_hook()
    switchboard = Switchboard(plan, run_folder, DataLoader.__iter__)
    seams.install(switchboard)
    try:
        _run_script(options)
    except MeasurementDone:
        return 0
    except SystemExit as ended:
        return _fail(run_folder, f"the script called sys.exit({ended.code!r})", "")
    except StashError as error:
        return _fail(run_folder, error.message, "")
    except BaseException as error:
        text = traceback.format_exc()
        print(text, file=sys.stderr)
        return _fail(run_folder, f"{type(error).__name__}: {error}", text)
    finally:
        with contextlib.suppress(Exception):
            switchboard.close()
    return _fail(run_folder, "the script ended before the measurement was done", "")


def _run_script(options: argparse.Namespace) -> None:
    script, *arguments = options.arguments
    sys.argv = [script, *arguments]
    if options.is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(script).resolve().parent))
        _run_file(Path(script).absolute())


def _run_file(path: Path) -> None:
    """As Python runs a script. Unlike with runpy, `__file__` holds after a change of folder."""
    main_module = ModuleType("__main__")
    main_module.__dict__.update(__file__=str(path), __builtins__=builtins)
    sys.modules["__main__"] = main_module
    exec(compile(path.read_bytes(), str(path), "exec"), main_module.__dict__)


def _fail(run_folder: Path, message: str, detail: str) -> int:
    """Tell the launcher; it names the worker and shows its last lines."""
    rank = os.environ.get("RANK", "0")
    error = {"rank": int(rank), "message": message[:4000], "traceback": detail[-20000:]}
    with contextlib.suppress(OSError):
        (run_folder / f"error-{rank}.json").write_text(json.dumps(error))
    return 1


def _pin(usable: int) -> None:
    """Give this worker its own cores: equal shares, in order of local rank."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))[:usable]
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    share = len(cores) // workers
    first = int(os.environ.get("LOCAL_RANK", "0")) * share
    if share:
        os.sched_setaffinity(0, cores[first : first + share])


def _end_children() -> None:
    """Loader workers that the script left behind are ours to end: they are our own children."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch raises when a loader worker dies
    with contextlib.suppress(psutil.Error):
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.Error):
                child.kill()
        psutil.wait_procs(children, timeout=5)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="stash.engine.host", description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="SCRIPT ...")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
