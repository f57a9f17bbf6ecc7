"""`stash profile` where a launcher has started every worker already: nothing is launched twice.

Each process becomes one worker of the engine; the first one writes the profile when it leaves.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NoReturn

from stash.engine import host
from stash.engine.direct import Direct
from stash.errors import UsageError
from stash.launch.prepare import Prepared, check_batch_is_a_number, prepare
from stash.launch.request import Request
from stash.launch.script import is_script


def run(request: Request) -> NoReturn:
    """This process as the worker that its environment names; does not return."""
    if request.launches > 1 or request.resume is not None or request.links:
        raise UsageError(
            "--launches, --resume and --links start workers, which here the launcher around Stash "
            "does."
        )
    if request.protect:
        raise UsageError(
            "--protect needs a process beside the workers, and here the launcher around Stash "
            "starts workers only. Give the script another output folder by its own flags."
        )
    workers = int(os.environ["WORLD_SIZE"])
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", workers))
    if request.nproc_per_node not in (None, per_node):
        raise UsageError(
            f"--nproc-per-node is {request.nproc_per_node}, and the launcher around Stash has "
            f"started {per_node} workers on this node. Leave the option out."
        )
    if workers % per_node:
        raise UsageError("Stash needs equally many workers on all nodes (--nproc-per-node).")
    if workers > 1 and not is_script(request):
        check_batch_is_a_number(request)
    prepared = prepare(replace(request, nproc_per_node=per_node), nodes=workers // per_node)
    direct = Direct.prepare(prepared.plan, request.out)
    host.work(prepared.plan, direct.run_folder, direct, *_script(prepared, direct))


def _script(prepared: Prepared, direct: Direct) -> tuple[bool, list[str]]:
    first, *rest = prepared.script_in(direct.run_folder)
    return (True, rest) if first == "-m" else (False, [first, *rest])
