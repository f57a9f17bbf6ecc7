"""The Python face of Stash: `stash.profile(...)` measures, `stash.load(...)` reads a profile."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stash.engine.plan import Plan
from stash.engine.protect import protected
from stash.errors import StashError, UsageError
from stash.launch import placement, resume
from stash.launch.agent import LOGS
from stash.launch.early import starting_agent
from stash.launch.garbage import collecting_later
from stash.launch.links import beside_a_profile
from stash.launch.nodes import Followed, Lead, follow, introduce, leading
from stash.launch.placement import Placement
from stash.launch.prepare import Prepared, prepare
from stash.launch.rendezvous import Point
from stash.launch.request import Request, expected_environment
from stash.launch.script import is_script
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
from stash.results.assemble import Outcome, Recording, assemble
from stash.results.harmless import harmless
from stash.results.profile import Profile
from stash.results.recording import Check, Phase

INTERRUPTED = 3  # the exit code


@dataclass(frozen=True)
class Measured:
    """A profile with where it was written and how its run ended."""

    profile: Profile
    path: Path
    exit_code: int
    #: With what a worker that failed said and wrote. It may hold secrets: for terminals alone.
    last_words: str | None = None


def profile(workload: str, **options: Any) -> Profile:
    """Measure a workload on this machine, as `stash profile` does, and return its profile.

    `workload` is a name in the zoo, `file.py:factory`, or a script with its `script_arguments`;
    options are those of the command, with underscores:
    `stash.profile("resnet18", nproc_per_node=2, device="emulated:v100")`,
    `stash.profile("train.py", script_arguments=("--epochs", "9"))`.
    Raises StashError where nothing could be measured; a run cut short returns what it has.
    """
    if "out" in options:
        options["out"] = Path(options["out"])
    if options.get("data") is not None:
        options["data"] = Path(options["data"])
    if options.get("resume") is not None:
        options["resume"] = Path(options["resume"])
    options["protect"] = tuple(Path(folder) for folder in options.get("protect", ()))
    return measure(Request(workload=workload, **options)).profile


def load(path: str | Path) -> Profile:
    """Read a profile."""
    return Profile.load(Path(path))


def measure(request: Request, listen: Listener = lambda events: None) -> Measured:
    """Run every launch of a request and keep what was measured, whatever happens on the way."""
    place = placement.place(request, os.environ)
    if not place.leads:
        raise UsageError(
            f"This is node {place.node}; node 0 collects what all nodes measure. "
            "Here `stash profile`, or stash.launch.api.take_part, runs the workers."
        )
    store.ensure_writable(request.out)
    with starting_agent(expected_environment(request)):
        with collecting_later():
            prepared = prepare(request, place.nodes)
        earlier = None if request.resume is None else resume.load(request.resume, request.out)
        if place.nodes > 1:
            listen([Phase(launch=0, name="waiting for the other nodes")])
        with leading(place, introduce(prepared, place), request.timeout_seconds) as lead:
            measured = _measure(prepared, lead, earlier, listen)
            lead.end(measured.exit_code, _told_elsewhere(measured))
    return measured


def take_part(request: Request) -> Followed:
    """The part of another node than the first: run workers there until node 0 has finished."""
    with starting_agent(expected_environment(request)):
        return _take_part(request, placement.place(request, os.environ))


def _take_part(request: Request, place: Placement) -> Followed:
    with collecting_later():
        prepared = prepare(request, place.nodes)
    run_folder = Path(tempfile.mkdtemp(prefix="stash-run-"))

    def run(plan: Plan, point: Point, alarm: Alarm) -> GangFailure | None:
        own = prepared.plan
        local = plan.model_copy(update={"data": own.data, "data_folder": own.data_folder})
        folder = run_folder / f"launch-{plan.launch}"
        folder.mkdir()
        return _run_gang(prepared, local, folder, lambda events: None, point, alarm)

    restore = interrupt_on_terminate()
    try:
        followed = follow(place, introduce(prepared, place), request.timeout_seconds, run)
    except KeyboardInterrupt:
        followed = Followed(
            INTERRUPTED, f"Interrupted; complete rounds are kept on node 0 ({place.host})."
        )
    finally:
        restore()
    if followed.exit_code == 0:
        shutil.rmtree(run_folder, ignore_errors=True)
    return followed


def _measure(prepared: Prepared, lead: Lead, earlier: Profile | None, listen: Listener) -> Measured:
    listen = _while_it_lasts(listen)
    restore = interrupt_on_terminate()
    try:
        return _measure_and_save(prepared, lead, earlier, listen)
    finally:
        restore()


def _while_it_lasts(listen: Listener) -> Listener:
    """Whoever watches may go away, a terminal or the end of a pipe; what is measured is kept."""
    there = True

    def tell(events: Iterable[Event]) -> None:
        nonlocal there
        try:
            if there:
                listen(events)
        except (OSError, SystemExit):  # rich leaves the program when a pipe is broken
            there = False

    return tell


def _measure_and_save(
    prepared: Prepared, lead: Lead, earlier: Profile | None, listen: Listener
) -> Measured:
    request = prepared.request
    run_folder = Path(tempfile.mkdtemp(prefix="stash-run-"))
    recording = Recording()
    with protected(request.protect):
        failure, interrupted = _run_launches(prepared, lead, earlier, run_folder, recording, listen)
    outcome = Outcome(
        id=secrets.token_hex(4),
        created=datetime.now(timezone.utc).replace(microsecond=0),
        half_width_asked=request.half_width,
        failure=None if failure is None else failure.message,
        interrupted=interrupted,
        checks=(
            *lead.checks(),
            *([] if earlier is None else [resume.check_of(earlier, recording.facts)]),
        ),
    )
    if not recording.rounds or not recording.facts:
        raise StashError(
            _nothing_measured(failure, run_folder), exit_code=INTERRUPTED if interrupted else 1
        )
    with uninterrupted():
        made = assemble(recording, outcome)
    last_words = None if failure is None else failure.quoting or None
    if request.links and failure is None and not interrupted:
        made, interrupted, last_words = _with_links(made, prepared, lead, listen)
    with uninterrupted():
        kept = store.keep(made, request.out, run_folder)
        problems = [] if kept.problem is None else [kept.problem]
        if is_script(request):
            problems += _keep_output(run_folder, kept.path.with_suffix(".log"))
    for problem in problems:
        print(f"stash: {harmless(problem, keep_newlines=True)}", file=sys.stderr)
    failed = failure is not None or kept.problem is not None
    if not failed and not problems:
        shutil.rmtree(run_folder, ignore_errors=True)
    return Measured(made, kept.path, INTERRUPTED if interrupted else int(failed), last_words)


def _with_links(
    made: Profile, prepared: Prepared, lead: Lead, listen: Listener
) -> tuple[Profile, bool, str | None]:
    """The profile with the links that it ran over, and whether probing them was interrupted.

    Where they cannot be probed, the profile is kept without them and says so; why is told beside.
    """
    plan = prepared.plan.model_copy(update={"launch": made.run.launches})
    try:
        links = beside_a_profile(lead, plan, prepared.workers, prepared.environment, listen)
    except KeyboardInterrupt:
        return made, True, None
    except Exception as error:  # whatever it is, the profile is there already
        missing = Check(
            name="links",
            status="warn",
            message="The links could not be probed after the rounds.",
            next="`stash links` probes them alone, and tells why it cannot.",
        )
        kept = made.model_copy(update={"checks": (*made.checks, missing)})
        interrupted = isinstance(error, StashError) and error.exit_code == INTERRUPTED
        return kept, interrupted, str(error)
    interrupted = links.run.stopped_because == "interrupted"
    return made.model_copy(update={"links": links}), interrupted, None


def _told_elsewhere(measured: Measured) -> str:
    """What the other nodes print: where the profile is, and why it ended early."""
    run = measured.profile.run
    why = f"{run.message.splitlines()[0]} " if measured.exit_code and run.message else ""
    return f"{why}Profile written on {platform.node() or 'node 0'}: {measured.path.absolute()}"


def _keep_output(run_folder: Path, log: Path) -> list[str]:
    """What the script's first worker wrote, beside the profile; a problem, where it has no room."""
    try:
        with log.open("wb") as kept:
            for name in ("stdout.log", "stderr.log"):
                for path in sorted(run_folder.glob(f"launch-*/{LOGS}/0/{name}")):
                    kept.write(path.read_bytes())
    except OSError as error:
        reason = error.strerror or error
        return [
            f"Cannot write the script's output to {log}: {reason}. All of it is in {run_folder}."
        ]
    return []


def _run_launches(
    prepared: Prepared,
    lead: Lead,
    earlier: Profile | None,
    run_folder: Path,
    recording: Recording,
    listen: Listener,
) -> tuple[GangFailure | None, bool]:
    """All launches, one after the other; ends at the first that fails or is interrupted."""

    def take(events: Iterable[Event]) -> None:
        known = list(events)
        if earlier is not None:
            resume.refuse_unlike(earlier, known)
        recording.add(known)
        listen(known)

    first = launch = 0
    try:
        if earlier is not None:
            first = resume.begin(earlier, recording)
        for launch in range(first, max(first + 1, prepared.request.launches)):
            folder = run_folder / f"launch-{launch}"
            folder.mkdir()
            plan = prepared.plan.model_copy(update={"launch": launch, "hosts": lead.hosts})
            if earlier is not None and launch == first:
                plan = resume.continued(earlier, plan, folder)
            with lead.launch(plan) as point:
                failure = _run_gang(prepared, plan, folder, take, point, lead.alarm)
                failure = lead.settle(failure)
            if failure is not None:
                return failure.told_with(after=f"\nAll logs: {folder}"), False
    except KeyboardInterrupt:
        return None, True
    except Exception as error:  # whatever it is, complete rounds are there already
        is_refusal = earlier is not None and isinstance(error, UsageError)
        if is_refusal or not (recording.rounds and recording.facts):
            raise
        return _broken_off(launch, error), False
    return None, False


def _broken_off(launch: int, error: Exception) -> GangFailure:
    """A launch that something here has ended, such as a disk that is full."""
    before = f"Launch {launch + 1} could not be run: "
    kind = type(error).__name__
    if isinstance(error, StashError):
        return GangFailure(before + error.message)
    if isinstance(error, OSError) and error.strerror:
        kind = error.strerror
    return GangFailure(f"{before}{kind}.", quoting=f"{before}{str(error) or kind}.")


def _run_gang(
    prepared: Prepared,
    plan: Plan,
    folder: Path,
    on_events: Listener,
    point: Point,
    alarm: Alarm,
) -> GangFailure | None:
    return run_gang(
        plan,
        folder,
        workers=prepared.workers,
        environment=prepared.environment,
        script=() if plan.links is not None else prepared.script_in(folder),
        on_events=on_events,
        point=point,
        alarm=alarm,
    )


def _nothing_measured(failure: GangFailure | None, run_folder: Path) -> str:
    if failure is None:
        shutil.rmtree(run_folder, ignore_errors=True)
        return "Interrupted before the first round was complete: nothing was measured."
    return f"{failure.shown}\nNo round was complete, so nothing was saved."
