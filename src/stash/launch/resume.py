"""A profile continued: its rounds are taken over, and workers of the same kind add more to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from stash.engine.plan import RECORDING, Plan
from stash.errors import UsageError
from stash.launch.supervise import Event
from stash.results import store
from stash.results.assemble import Outcome, Recording, assemble
from stash.results.profile import Profile, Provenance
from stash.results.recording import (
    Check,
    Facts,
    MachineFacts,
    Recorder,
    RecordingReader,
    Round,
)

#: What must be the same for rounds to be put together. Hosts may be others of the same kind, as a
#: scheduler gives them after a preemption.
SAME_WORKLOAD = (
    "name",
    "parameters",
    "gradient_bytes",
    "optimizer",
    "batch_per_worker",
    "samples",
    "data",
    "loader_workers",
    "dtype",
)
SAME_MACHINE = (
    "cpu",
    "cores",
    "device",
    "devices",
    "nodes",
    "workers_per_node",
    "threads_per_worker",
    "pinned",
    "backend",
    "torch",
    "stash",
    "instance",
)


def load(path: Path, folder: Path) -> Profile:
    """The profile to continue: a file, a name in the store, or a run that could not write one."""
    if path.is_dir():
        return _recorded(path)
    profile = Profile.load(store.find(str(path), folder))
    if profile.provenance in (Provenance.PREDICTED, Provenance.CITED) or not profile.run.rounds:
        raise UsageError(f"--resume: {path} holds no rounds that could be continued.")
    return profile


def _recorded(run_folder: Path) -> Profile:
    """What a run has recorded, launch by launch."""
    recording = Recording()
    for path in (run_folder / RECORDING, *sorted(run_folder.glob(f"launch-*/{RECORDING}"))):
        recording.add(RecordingReader(path).new_events())
    if not recording.rounds or not recording.facts:
        raise UsageError(f"--resume: the folder {run_folder} holds no recorded rounds.")
    outcome = Outcome(
        id=run_folder.resolve().name,
        created=datetime.now(timezone.utc),
        half_width_asked=0.0,
        interrupted=True,
    )
    return assemble(recording, outcome)


def begin(earlier: Profile, recording: Recording) -> int:
    """Take over all launches but the last, which goes on; its number."""
    rounds = earlier.rounds()
    last = max(one.launch for one in rounds)
    recording.add(one for one in rounds if one.launch < last)
    return last


def continued(earlier: Profile, plan: Plan, run_folder: Path) -> Plan:
    """The plan of a launch that goes on; the rounds that it has begin its recording."""
    rounds = [one for one in earlier.rounds() if one.launch == plan.launch]
    _refuse_other_steps(rounds[0], plan)
    recorder = Recorder(run_folder / RECORDING)
    for one in rounds:
        recorder.write(one)
    recorder.close()
    return plan.model_copy(update={"earlier_rounds": len(rounds)})


def check_of(earlier: Profile, facts: Sequence[Facts]) -> Check:
    """Rounds of two starts are in one launch: what starts differ by is not in the intervals."""
    before = _hosts(earlier.machine)
    now = _hosts(facts[0].machine) if facts else before
    moved = "" if before == now else f" They ran on {before}, the others on {now}."
    return Check(
        name="resumed",
        status="warn",
        message=(
            f"{earlier.run.rounds} rounds are those of profile {earlier.id}, of an earlier start "
            "of the workers: what one start differs by from another is not in the intervals."
            + moved
        )[:4000],
        next="For intervals that hold it, measure anew with --launches 4.",
    )


def refuse_unlike(earlier: Profile, events: Iterable[Event]) -> None:
    """End a run whose workload or machine is another, by the name of the field."""
    for facts in events:
        if not isinstance(facts, Facts):
            continue
        for part, fields in (("workload", SAME_WORKLOAD), ("machine", SAME_MACHINE)):
            for field in fields:
                before = getattr(getattr(earlier, part), field)
                now = getattr(getattr(facts, part), field)
                if before != now:
                    raise UsageError(
                        f"--resume: {part}.{field} is {before} in profile {earlier.id} and {now} "
                        "here. Only the same workload on the same kind of machines can be "
                        "continued."
                    )


def _hosts(machine: MachineFacts) -> str:
    return ", ".join(machine.hosts or (machine.host,))


def _refuse_other_steps(one: Round, plan: Plan) -> None:
    before, now = sorted(block.step for block in one.blocks), sorted(plan.steps)
    if before != now:
        raise UsageError(
            f"--resume: that profile has steps {', '.join(before)}, asked for are "
            f"{', '.join(now)}. Name the same ones with --steps."
        )
