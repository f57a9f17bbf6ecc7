"""The Python face of Stash: `stash.profile(...)` measures, `stash.load(...)` reads a profile."""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Any

from stash.engine.protect import protected
from stash.errors import StashError
from stash.launch.request import Prepared, Request, prepare
from stash.launch.script import is_script
from stash.launch.supervise import Event, run_gang, uninterrupted
from stash.results import store
from stash.results.assemble import Outcome, Recording, assemble
from stash.results.profile import Profile

Listener = Callable[[Iterable[Event]], None]


@dataclass(frozen=True)
class Measured:
    """A profile with where it was written and how its run ended."""

    profile: Profile
    path: Path
    exit_code: int


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
    options["protect"] = tuple(Path(folder) for folder in options.get("protect", ()))
    return measure(Request(workload=workload, **options)).profile


def load(path: str | Path) -> Profile:
    """Read a profile."""
    return Profile.load(Path(path))


def measure(request: Request, listen: Listener = lambda events: None) -> Measured:
    """Run every launch of a request and keep what was measured, whatever happens on the way."""
    store.ensure_writable(request.out)
    prepared = prepare(request)
    run_folder = Path(tempfile.mkdtemp(prefix="stash-run-"))
    recording = Recording()
    with protected(request.protect):
        failure, interrupted = _run_launches(prepared, run_folder, recording, listen)
    outcome = Outcome(
        id=secrets.token_hex(4),
        created=datetime.now(timezone.utc).replace(microsecond=0),
        half_width_asked=request.half_width,
        failure=failure,
        interrupted=interrupted,
    )
    if not recording.rounds:
        raise StashError(_nothing_measured(failure, run_folder), exit_code=3 if interrupted else 1)
    with uninterrupted():
        made = assemble(recording, outcome)
        path = store.save(made, request.out)
        if is_script(request):
            _keep_output(run_folder, path.with_suffix(".log"))
    if failure is None:
        shutil.rmtree(run_folder, ignore_errors=True)
    return Measured(made, path, 3 if interrupted else (1 if failure else 0))


def _keep_output(run_folder: Path, log: Path) -> None:
    """What the script's first worker wrote, beside the profile."""
    with log.open("wb") as kept:
        for name in ("stdout.log", "stderr.log"):
            for path in sorted(run_folder.glob(f"launch-*/logs/*/attempt_0/0/{name}")):
                kept.write(path.read_bytes())


def _run_launches(
    prepared: Prepared, run_folder: Path, recording: Recording, listen: Listener
) -> tuple[str | None, bool]:
    """All launches, one after the other; ends at the first that fails or is interrupted."""

    def take(events: Iterable[Event]) -> None:
        known = list(events)
        recording.add(known)
        listen(known)

    restore = interrupt_on_terminate()
    try:
        for launch in range(prepared.request.launches):
            folder = run_folder / f"launch-{launch}"
            folder.mkdir()
            failure = run_gang(
                prepared.plan.model_copy(update={"launch": launch}),
                folder,
                workers=prepared.workers,
                threads=prepared.threads,
                script=prepared.script_in(folder),
                on_events=take,
            )
            if failure is not None:
                return f"{failure.message}\nAll logs: {folder}", False
    except KeyboardInterrupt:
        return None, True
    finally:
        restore()
    return None, False


def interrupt_on_terminate() -> Callable[[], None]:
    """A scheduler that ends us politely gets the same as Ctrl-C: complete rounds are kept."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread: the embedding program owns its signals
        return lambda: None
    return lambda: (signal.signal(signal.SIGTERM, before), None)[1]


def _nothing_measured(failure: str | None, run_folder: Path) -> str:
    if failure is None:
        shutil.rmtree(run_folder, ignore_errors=True)
        return "Interrupted before the first round was complete: nothing was measured."
    return f"{failure}\nNo round was complete, so nothing was saved."
