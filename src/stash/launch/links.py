"""`stash links` as a request: a gang that probes links, and the document of what it found."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stash.engine.plan import LinksPlan, Plan
from stash.errors import StashError, UsageError
from stash.hardware import device_names, nvml
from stash.hardware.machine import usable_cores
from stash.launch.api import Listener, interrupt_on_terminate
from stash.launch.nodes import Lead
from stash.launch.request import check_torch, default_device, default_workers
from stash.launch.supervise import Event, run_gang, uninterrupted
from stash.results import store
from stash.results.assemble_links import Probing, assemble_links
from stash.results.links import Links
from stash.results.store import DEFAULT_FOLDER

SMALLEST_BYTES = 4 << 10
#: Each size is so many times the one before.
STEP_OF_SIZES = 4


@dataclass(frozen=True, kw_only=True)
class LinksRequest:
    """One `stash links`."""

    nproc_per_node: int | None = None
    device: str | None = None
    data: Path | None = None  # files to read cold; made where none are named
    storage: bool = True
    max_bytes: int = 64 << 20
    rounds: int = 20
    max_minutes: float = 2.0
    timeout_seconds: float = 300.0
    seed: int = 0
    out: Path = DEFAULT_FOLDER


@dataclass(frozen=True)
class Probed:
    """A links document with where it was written and how its run ended."""

    links: Links
    path: Path
    exit_code: int


def links(**options: Any) -> Links:
    """Probe this machine's links as `stash links` does; options are its own, with underscores."""
    for name in ("out", "data"):
        if options.get(name) is not None:
            options[name] = Path(options[name])
    return measure_links(LinksRequest(**options)).links


def measure_links(request: LinksRequest, listen: Listener = lambda events: None) -> Probed:
    """Probe and keep what was found, whatever happens on the way."""
    store.ensure_writable(request.out)
    found = probe_links(request, listen)
    with uninterrupted():
        path = store.save(found, request.out)
    code = {"interrupted": 3, "failed": 1}.get(found.run.stopped_because, 0)
    return Probed(found, path, code)


def probe_links(request: LinksRequest, listen: Listener = lambda events: None) -> Links:
    """Start the gang, and turn its rounds into a document."""
    _check(request)
    check_torch()
    device = device_names.parse(request.device) if request.device else default_device()
    if device.kind == "emulated":
        raise UsageError("--device: an emulated device has no links; probe cpu or cuda.")
    workers = request.nproc_per_node or default_workers(device)
    cores = usable_cores()
    with _files_to_read(request) as (folder, makes_files):
        plan = Plan(
            seed=request.seed,
            steps=(),
            max_rounds=request.rounds,
            max_seconds=request.max_minutes * 60.0,
            timeout_seconds=request.timeout_seconds,
            workload="links",
            device=str(device),
            pin_cores=device.kind == "cpu" and 1 < workers <= cores,
            links=LinksPlan(
                message_bytes=_sizes(request.max_bytes),
                folder=None if folder is None else str(folder.absolute()),
                makes_files=makes_files,
            ),
        )
        return _run(plan, workers, max(1, cores // workers), listen)


def _run(plan: Plan, workers: int, threads: int, listen: Listener) -> Links:
    events: list[Event] = []

    def take(new: Iterable[Event]) -> None:
        known = list(new)
        events.extend(known)
        listen(known)

    run_folder = Path(tempfile.mkdtemp(prefix="stash-run-"))
    failure, interrupted = None, False
    restore = interrupt_on_terminate()
    try:
        with Lead.alone().launch(plan) as point:
            failure = run_gang(
                plan,
                run_folder,
                workers=workers,
                threads=threads,
                script=("--links",),
                on_events=take,
                point=point,
            )
    except KeyboardInterrupt:
        interrupted = True
    finally:
        restore()
    if failure is None:
        shutil.rmtree(run_folder, ignore_errors=True)
    probing = Probing(
        id=secrets.token_hex(4),
        created=datetime.now(timezone.utc).replace(microsecond=0),
        topology=nvml.topology(),
        failure=None if failure is None else f"{failure.message}\nAll logs: {run_folder}",
        interrupted=interrupted,
    )
    return assemble_links(events, probing)


@contextmanager
def _files_to_read(request: LinksRequest) -> Iterator[tuple[Path | None, bool]]:
    """The user's files, or a folder on a disk where workers may make some, gone afterwards."""
    from stash.workloads.generate import cache_folder

    if not request.storage:
        yield None, False
    elif request.data is not None:
        yield request.data, False
    else:
        place = cache_folder()  # temporary folders may lie in memory
        try:
            place.mkdir(parents=True, exist_ok=True)
            made = tempfile.mkdtemp(prefix="links-", dir=place)
        except OSError as error:
            raise StashError(
                f"Cannot make files to read in {place}: {error.strerror or error}. "
                "Name files with --data, or leave storage out with --no-storage.",
                exit_code=2,
            ) from None
        try:
            yield Path(made), True
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _sizes(largest: int) -> tuple[int, ...]:
    sizes = [SMALLEST_BYTES]
    while sizes[-1] * STEP_OF_SIZES <= largest:
        sizes.append(sizes[-1] * STEP_OF_SIZES)
    return tuple(sizes)


def _check(request: LinksRequest) -> None:
    positive = {
        "--nproc-per-node": request.nproc_per_node,
        "--rounds": request.rounds,
        "--max-minutes": request.max_minutes,
        "--timeout": request.timeout_seconds,
    }
    for name, value in positive.items():
        if value is not None and not value > 0:
            raise UsageError(f"{name} must be above 0, not {value}.")
    if request.max_bytes < SMALLEST_BYTES:
        raise UsageError(f"--max-bytes must be {SMALLEST_BYTES} or more, not {request.max_bytes}.")
    if request.data is not None and not request.data.exists():
        raise UsageError(f"--data: there is no {request.data}.")
