"""Are the intervals honest for every kind of stall, also while something else loads the machine?

Gangs are launched in two worlds whose stalls are known in closed form: in one they exchange
gradients, share their machine and prepare batches, each for a known time; in the other they read
from a throttled disk. In both, iterations vary. Rounds of a launch are cut into profiles of as many
as a profile has at least; a 95 % interval should hold the truth in 90 to 99 of 100 of them. The
network stall, which needs two hosts, has a benchmark of its own (network_truth.py).

    python benchmarks/coverage_by_kind.py [--only WORLD ...] [--bursts] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from load import bursts
from truth import surroundings
from truth_experiments import ALL_STEPS, Experiment, world_with
from truth_worlds import FACTORY, WORKERS

from stash.engine.plan import MIN_ROUNDS
from stash.launch.api import _run_launches
from stash.launch.nodes import Lead
from stash.launch.request import Request, prepare
from stash.results.assemble import Recording
from stash.results.estimates import Times
from stash.results.statistics import Estimate, plain_mean
from stash.results.steps import STALL_BY_NAME

AMOUNT = 0.2
#: Iterations vary by this part to either side. On an ideal device intervals are as narrow as what
#: closed forms leave out, a tenth of a millisecond, and tell nothing of what intervals are for.
UNEVEN = 0.02
#: What is put in together.
WORLDS = {"delays": ("communication", "contention", "prep"), "disk": ("fetch",)}
#: A replay block of one iteration must last 50 ms; a disk's answer 100 ms (docs/truth.md).
ITERATION_SECONDS = {"delays": 0.06, "disk": 0.1}


def main() -> None:
    options = _parse()
    found = []
    with bursts() if options.bursts else contextlib.nullcontext():
        for world in options.only or WORLDS:
            experiment = _experiment(world, options.uneven)
            for one in covered_in(experiment, options.launches, options.profiles, options.rounds):
                found.append(one)
                out = sys.stderr if options.json else sys.stdout
                print(_line(one), file=out, flush=True)
    if options.json:
        said = {"bursts": options.bursts, "uneven": options.uneven, "kinds": found}
        print(json.dumps(said, indent=1))


def _line(one: dict[str, Any]) -> str:
    return (
        f"{one['kind']}: {one['covered']} of {one['profiles']} intervals hold the truth of "
        f"{one['truth_ms']:.3f} ms; mean half-width {one['mean_half_width_ms']:.3f} ms; mean "
        f"error {one['mean_error_ms']:+.3f} +- {one['error_half_width_ms']:.3f} ms"
    )


def covered_in(
    experiment: Experiment, launches: int, profiles: int, rounds: int
) -> list[dict[str, Any]]:
    """Launches, cut into profiles; how many of their intervals hold the truth, by kind."""
    of_launches = [_record(experiment, profiles * rounds, seed).rounds for seed in range(launches)]
    parts = [
        [Times.of(of_one[first : first + rounds]) for first in range(0, len(of_one), rounds)]
        for of_one in of_launches
    ]
    truth = experiment.world.truth()
    return [_covered(kind, truth[kind], rounds, parts) for kind in WORLDS[experiment.name]]


def _covered(
    kind: str, truth: float, rounds: int, parts: Sequence[Sequence[Times]]
) -> dict[str, Any]:
    stall = STALL_BY_NAME[kind]
    by_launch = [[part.stall(stall) for part in of_one] for of_one in parts]
    found = [one for of_one in by_launch for one in of_one]
    error = plain_mean([[one.value - truth for one in of_one] for of_one in by_launch])
    return {
        "kind": kind,
        "profiles": len(found),
        "rounds": rounds,
        "covered": sum(_holds(one, truth) for one in found),
        "covered_by_launch": [sum(_holds(one, truth) for one in of_one) for of_one in by_launch],
        "truth_ms": 1e3 * truth,
        "mean_error_ms": 1e3 * error.value,
        "error_half_width_ms": 1e3 * (error.half_width or math.nan),  # of launches
        "mean_half_width_ms": 1e3 * statistics.mean(one.half_width or 0.0 for one in found),
    }


def _holds(estimate: Estimate, truth: float) -> bool:
    assert estimate.low is not None and estimate.high is not None
    return estimate.low <= truth <= estimate.high


def _experiment(name: str, uneven: float) -> Experiment:
    """A fifth of an iteration of every kind; only the steps whose differences they are."""
    kinds = WORLDS[name]
    world = world_with(
        **dict.fromkeys(kinds, AMOUNT), iteration_seconds=ITERATION_SECONDS[name], uneven=uneven
    )
    wanted = {step for kind in kinds for _, step in STALL_BY_NAME[kind].terms}
    return Experiment(
        name=name,
        group="coverage",
        about="",
        world=replace(world, samples_per_batch=1),
        steps=tuple(step for step in ALL_STEPS if step in wanted),
    )


def _record(experiment: Experiment, rounds: int, seed: int) -> Recording:
    recording = Recording()
    experiment = replace(experiment, world=replace(experiment.world, seed=seed))
    with (
        tempfile.TemporaryDirectory(prefix="stash-coverage-") as folder,
        surroundings(experiment, Path(folder)) as where,
    ):
        os.environ.update(where.environment)
        request = Request(
            workload=FACTORY,
            nproc_per_node=WORKERS,
            num_workers=where.world.loader_workers,
            device=where.world.device,
            steps=experiment.steps,
            half_width=1e-6,  # never: rounds are what ends it
            max_rounds=rounds,
            max_minutes=None,
            seed=seed,
        )
        failure, interrupted = _run_launches(
            prepare(request), Lead.alone(), None, Path(folder), recording, lambda events: None
        )
    if failure or interrupted:
        raise SystemExit(failure or "interrupted")
    return recording


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--profiles", type=int, default=20, help="of one launch")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="of one profile")
    parser.add_argument("--only", nargs="+", choices=tuple(WORLDS), metavar="WORLD")
    parser.add_argument("--uneven", type=float, default=UNEVEN, help="0: an ideal device")
    parser.add_argument("--bursts", action="store_true", help="load the machine meanwhile")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
