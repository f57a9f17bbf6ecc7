"""How a profile was measured, in plain words and from its own numbers."""

from __future__ import annotations

from stash.report import words
from stash.report.facts import INTERMITTENT_NOTE
from stash.results.profile import Profile, Provenance, Run
from stash.results.recording import Calibration
from stash.results.statistics import FEW_ROUNDS


def how_it_was_measured(profile: Profile) -> list[str]:
    """The story of this measurement, one sentence a step of it."""
    if profile.provenance in (Provenance.PREDICTED, Provenance.CITED):
        return [words.NOT_MEASURED[profile.provenance]]
    run, sentences = profile.run, []
    if profile.provenance is Provenance.EMULATED:
        sentences.append(words.NOT_MEASURED[profile.provenance])
    workers = profile.machine.workers
    sentences.append(
        f"{'One worker' if workers == 1 else f'{workers} workers'} trained as an ordinary job, "
        "with the learning rate held at zero: the same work again and again."
    )
    if profile.calibration is not None:
        sentences += _calibration(profile.calibration)
    rounds = "One round was" if run.rounds == 1 else f"{run.rounds} rounds were"
    sentences += [
        f"{rounds} measured. A round is one short block of every step, in random order, so that "
        "whatever drifts cancels within it.",
        f"A stall is the difference of two steps within a round. Its estimate is {_center(run)} "
        "over rounds; intervals are 95 %; nothing is clamped at zero.",
    ]
    if any(stall.intermittent for stall in profile.stalls.values()):
        sentences.append(INTERMITTENT_NOTE)
    if "cold" in profile.steps:
        sentences.append(
            "Cold means that the files were dropped from the page cache before each block; what a "
            "disk caches below that is not known here."
        )
    sentences.append(words.why_it_stopped(run))
    return sentences


def _center(run: Run) -> str:
    few = run.rounds < FEW_ROUNDS * run.launches
    return "the median" if few else "the 20 % trimmed mean"


def _calibration(calibration: Calibration) -> list[str]:
    settled = "until it settled" if calibration.warm_up_settled else "and had not settled then"
    varying = " Their shapes vary." if calibration.replay_shapes_vary else ""
    return [
        f"Warm-up took {calibration.warm_up_iterations} iterations, {settled}.",
        f"Steps without a loader replayed {calibration.replay_batches} recorded batches; loader "
        f"steps read a window of {calibration.window_samples} samples per worker.{varying}",
    ]
