"""A user's own training script as a request: what its flags decide, and what ours still can."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stash.errors import UsageError

if TYPE_CHECKING:
    from stash.hardware.device_names import DeviceName
    from stash.launch.request import Request


def is_script(request: Request) -> bool:
    """Whether a script or module is asked for, and not a name in the zoo or a factory."""
    return request.is_module or request.workload.endswith(".py")


def host_arguments(request: Request) -> tuple[str, ...]:
    """How the engine's host is to run it."""
    module = ("-m",) if request.is_module else ()
    return (*module, request.workload, *request.script_arguments)


def name_of(request: Request) -> str:
    """What reports call it."""
    return request.workload if request.is_module else Path(request.workload).name


def check(request: Request, device: DeviceName) -> None:
    """Refuse what a script decides by itself, before anything is started."""
    given = {
        "--batch-size": request.batch_size,
        "--num-workers": request.num_workers,
        "--dtype": request.dtype,
    }
    ignored = [name for name, value in given.items() if value is not None]
    if ignored:
        raise UsageError(
            f"{' and '.join(ignored)} would have no effect: a script decides that by itself. "
            "Its own flags go after `--`."
        )
    if device.kind == "emulated":
        raise UsageError(
            "A script trains on the devices that it asks for; only models of the zoo and "
            "file.py:factory can be emulated."
        )
    path = Path(request.workload)
    if not request.is_module and not path.is_file():
        hint = "; a factory is path/file.py:function" if ":" in request.workload else ""
        raise UsageError(f"There is no script {path}{hint}.")
    if request.data is not None and not request.data.exists():
        raise UsageError(f"--data: there is no {request.data}.")
