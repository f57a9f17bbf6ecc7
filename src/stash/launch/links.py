"""`stash links` as a request: a gang that probes links, and the document of what it found."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from stash import __version__
from stash.engine.plan import LinksPlan, Plan
from stash.errors import StashError, UsageError, check_positive
from stash.hardware import device_names, nvml
from stash.hardware.machine import usable_cores
from stash.launch import placement
from stash.launch.meeting import Hello
from stash.launch.nodes import Followed, Lead, follow, leading
from stash.launch.placement import Placement
from stash.launch.prepare import check_torch, default_device, default_workers
from stash.launch.rendezvous import Point, environment_of_all
from stash.launch.supervise import (
    Alarm,
    Event,
    GangFailure,
    Listener,
    interrupt_on_terminate,
    run_gang,
    uninterrupted,
)
from stash.results import store
from stash.results.assemble_links import Probing, assemble_links
from stash.results.harmless import harmless
from stash.results.links import Links
from stash.results.recording import LinkRound
from stash.results.store import DEFAULT_FOLDER

SMALLEST_BYTES = 4 << 10
#: Each size is so many times the one before.
STEP_OF_SIZES = 4


@dataclass(frozen=True, kw_only=True)
class LinksRequest:
    """One `stash links`."""

    nproc_per_node: int | None = None
    nnodes: int | None = None  # none: as a launcher around us says, or one
    node_rank: int | None = None
    rdzv_endpoint: str | None = None
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
    last_words: str | None = None  # of a worker that failed, for terminals alone


def links(**options: Any) -> Links:
    """Probe this machine's links as `stash links` does; options are its own, with underscores."""
    for name in ("out", "data"):
        if options.get(name) is not None:
            options[name] = Path(options[name])
    return measure_links(LinksRequest(**options)).links


def measure_links(request: LinksRequest, listen: Listener = lambda events: None) -> Probed:
    """Probe and keep what was found, whatever happens on the way."""
    prepared = _prepare(request)
    place = prepared.place
    if not place.leads:
        raise UsageError(f"This is node {place.node}; node 0 collects what all nodes measure.")
    store.ensure_writable(request.out)
    with (
        leading(place, prepared.introduction, request.timeout_seconds) as lead,
        _files_to_read(request.data, storage=request.storage) as files,
    ):
        plan = prepared.plan.model_copy(update={"links": _links_plan(request.max_bytes, files)})
        found = probe(lead, plan, prepared.workers, prepared.environment, listen)
        with uninterrupted():
            kept = store.keep(found.links, request.out, found.run_folder)
        if kept.problem is None:
            found.clear()
        else:
            print(f"stash: {harmless(kept.problem, keep_newlines=True)}", file=sys.stderr)
        done = 0 if kept.problem is None else 1
        code = {"interrupted": 3, "failed": 1}.get(found.links.run.stopped_because, done)
        lead.end(code, f"Links written on {platform.node()}: {kept.path}")
    return Probed(found.links, kept.path, code, found.last_words)


def take_part_in_links(request: LinksRequest) -> Followed:
    """The part of another node than the first: run workers there until node 0 has finished."""
    prepared = _prepare(request)

    def run(plan: Plan, point: Point, alarm: Alarm) -> GangFailure | None:
        with tempfile.TemporaryDirectory(prefix="stash-run-") as folder:
            return run_gang(
                plan,
                Path(folder),
                workers=prepared.workers,
                environment=prepared.environment,
                script=(),
                on_events=lambda events: None,
                point=point,
                alarm=alarm,
            )

    restore = interrupt_on_terminate()
    try:
        return follow(prepared.place, prepared.introduction, request.timeout_seconds, run)
    except KeyboardInterrupt:
        return Followed(3, "Interrupted; complete rounds are kept on node 0.")
    finally:
        restore()


@dataclass(frozen=True)
class Probe:
    """What one launch found, and where its recording and its logs are."""

    links: Links
    run_folder: Path
    last_words: str | None

    def clear(self) -> None:
        """Once the document is kept, only logs of a failure are worth their room."""
        if self.links.run.stopped_because != "failed":
            shutil.rmtree(self.run_folder, ignore_errors=True)


def probe(
    lead: Lead, plan: Plan, workers: int, environment: Mapping[str, str], listen: Listener
) -> Probe:
    """One launch on all nodes, and the document of its rounds."""
    events: list[Event] = []

    def take(new: Iterable[Event]) -> None:
        known = list(new)
        events.extend(known)
        listen(known)

    plan = plan.model_copy(update={"hosts": lead.hosts})
    run_folder = Path(tempfile.mkdtemp(prefix="stash-run-"))
    failure: GangFailure | None = None
    interrupted = False
    restore = interrupt_on_terminate()
    try:
        with lead.launch(plan) as point:
            ended = run_gang(
                plan,
                run_folder,
                workers=workers,
                environment=environment,
                script=(),
                on_events=take,
                point=point,
                alarm=lead.alarm,
            )
            settled = lead.settle(ended)
            failure = settled and settled.told_with(after=f"\nAll logs: {run_folder}")
    except KeyboardInterrupt:
        interrupted = True
    finally:
        restore()
    if failure is None and not any(isinstance(event, LinkRound) for event in events):
        shutil.rmtree(run_folder, ignore_errors=True)  # interrupted at once: nothing was measured
    probing = Probing(
        id=secrets.token_hex(4),
        created=datetime.now(timezone.utc).replace(microsecond=0),
        topology=nvml.topology(),
        failure=None if failure is None else failure.message,
        quoting="" if failure is None else failure.quoting,
        interrupted=interrupted,
        checks=lead.checks(),
    )
    return Probe(assemble_links(events, probing), run_folder, probing.quoting or None)


def beside_a_profile(
    lead: Lead, plan: Plan, workers: int, environment: Mapping[str, str], listen: Listener
) -> Links:
    """The same after the rounds of a profile, on the same nodes; emulated devices have none."""
    defaults = LinksRequest()
    device = "cpu" if plan.device.startswith("emulated") else plan.device
    with _files_to_read(None, storage=True) as files:
        known = {
            "device": device,
            "launch": plan.launch + 1,
            "max_rounds": defaults.rounds,
            "max_seconds": defaults.max_minutes * 60.0,
            "links": _links_plan(defaults.max_bytes, files),
        }
        found = probe(lead, plan.model_copy(update=known), workers, environment, listen)
    found.clear()
    return found.links


@dataclass(frozen=True)
class _Prepared:
    """A request with every default decided."""

    place: Placement
    plan: Plan
    workers: int
    environment: Mapping[str, str]

    @property
    def introduction(self) -> Hello:
        """What must be asked for alike on all nodes."""
        asked = {
            "command": "stash links",
            "--nnodes": self.place.nodes,
            "--nproc-per-node": self.workers,
            "--device": self.plan.device,
        }
        return Hello(
            node=self.place.node,
            host=platform.node() or "unknown",
            stash=__version__,
            torch=metadata.version("torch"),
            asked={option: str(value) for option, value in asked.items()},
        )


def _prepare(request: LinksRequest) -> _Prepared:
    _check(request)
    check_torch()
    place = placement.place(request, os.environ)
    device = device_names.parse(request.device) if request.device else default_device()
    if device.kind == "emulated":
        raise UsageError("--device: an emulated device has no links; probe cpu or cuda.")
    told = placement.workers_told(os.environ)
    workers = request.nproc_per_node or told or default_workers(device)
    cores = usable_cores()
    plan = Plan(
        seed=request.seed,
        steps=(),
        max_rounds=request.rounds,
        max_seconds=request.max_minutes * 60.0,
        timeout_seconds=request.timeout_seconds,
        workload="links",
        device=str(device),
        pin_cores=device.kind == "cpu" and 1 < workers <= cores,
        nodes=place.nodes,
    )
    threads = max(1, cores // workers)
    return _Prepared(place, plan, workers, environment_of_all(os.environ, workers, threads))


def _links_plan(max_bytes: int, files: tuple[Path | None, bool]) -> LinksPlan:
    folder, makes_files = files
    return LinksPlan(
        message_bytes=_sizes(max_bytes),
        folder=None if folder is None else str(folder.absolute()),
        makes_files=makes_files,
    )


@contextmanager
def _files_to_read(data: Path | None, *, storage: bool) -> Iterator[tuple[Path | None, bool]]:
    """The user's files, or a folder on a disk where workers may make some, gone afterwards."""
    from stash.workloads.generate import cache_folder

    if not storage:
        yield None, False
    elif data is not None:
        yield data, False
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
    if placement.is_worker(os.environ):
        raise UsageError(
            "A launcher has started this process as a worker. Run `stash links` by itself, once "
            "on each node: it starts its workers."
        )
    check_positive(
        {
            "--nproc-per-node": request.nproc_per_node,
            "--rounds": request.rounds,
            "--max-minutes": request.max_minutes,
            "--timeout": request.timeout_seconds,
        }
    )
    if request.max_bytes < SMALLEST_BYTES:
        raise UsageError(f"--max-bytes must be {SMALLEST_BYTES} or more, not {request.max_bytes}.")
    if request.data is not None and not request.data.exists():
        raise UsageError(f"--data: there is no {request.data}.")
