"""Are the intervals honest for every kind of stall, also while something else loads the machine?

Gangs are launched in worlds whose stalls are known in closed form: in one they exchange gradients,
share their machine and prepare batches, each for a known time; in another compute hides what they
exchange and prepare; in the third they read from a throttled disk. In all, iterations vary. Rounds
of a launch are cut into profiles of as many as a profile has at least; a 95 % interval should hold
the truth in 90 to 99 of 100 of them. The network stall, which needs two hosts, has a benchmark of
its own (network_truth.py).

    python benchmarks/coverage_by_kind.py [--only WORLD ...] [--bursts]
    python benchmarks/coverage_by_kind.py --launches 1 --seed 3 --append F     a slice of a long run
    python benchmarks/coverage_by_kind.py --summary F                          all slices together
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import slices
from load import bursts
from truth import surroundings
from truth_experiments import ALL_STEPS, Experiment, world_with
from truth_worlds import FACTORY, WORKERS, World

from stash.engine.plan import MIN_ROUNDS
from stash.launch.api import _run_launches
from stash.launch.nodes import Lead
from stash.launch.prepare import prepare
from stash.launch.request import Request
from stash.results.assemble import Recording
from stash.results.estimates import Times
from stash.results.recording import Block, Round
from stash.results.statistics import Estimate, plain_mean
from stash.results.steps import STALL_BY_NAME
from stash.results.validity import STEAL_FRACTION, stolen_fraction

AMOUNT = 0.2
#: Iterations vary by this part to either side, so that intervals of 20 rounds are about as wide as
#: a profile asks for by default (3 %). On an ideal device they are as narrow as what closed forms
#: leave out, some tenths of a millisecond here, and tell nothing of what intervals are for.
UNEVEN = 0.05
#: Profiles are told apart by how much was stolen from them, in so many groups of one size.
STOLEN_GROUPS = 4
#: What is put in together.
WORLDS = {
    "delays": ("communication", "contention", "prep"),
    "hidden": ("communication", "prep"),
    "disk": ("fetch",),
}
#: A replay block of one iteration must last 50 ms; a disk's answer 100 ms (docs/truth.md).
ITERATION_SECONDS = {"delays": 0.06, "hidden": 0.06, "disk": 0.1}
#: Of an iteration: an exchange that is over before the backward pass is, with the two milliseconds
#: that it really takes, and a batch that is there before it is wanted.
HIDDEN_EXCHANGE, HIDDEN_PREPARE = 0.05, 0.6


def main() -> None:
    options = _parse()
    if options.summary is not None:
        told = summaries(options.summary)
    else:
        told = _told(list(_launches(options)))
    for one in told:
        print(_line(one))


def summaries(path: Path) -> list[dict[str, Any]]:
    """What all launches say that were kept in a file."""
    return _told(slices.read(path))


def by_stolen(path: Path) -> list[dict[str, Any]]:
    """Errors of quiet profiles, from the quarter with the least stolen to that with the most."""
    profiles = sorted(
        (
            (stolen, {kind: of["found"][at][0] - of["truth"] for kind, of in one["kinds"].items()})
            for one in slices.read(path)
            if one["world"] == "delays" and not one["bursts"] and "stolen" in one
            for at, stolen in enumerate(one["stolen"])
        ),
        key=lambda profile: profile[0],
    )
    size = len(profiles) / STOLEN_GROUPS
    ends = [round(size * number) for number in range(STOLEN_GROUPS + 1)]
    groups = [profiles[first:last] for first, last in pairwise(ends)]
    return [
        {
            "stolen_percent": [100 * group[0][0], 100 * group[-1][0]],
            "profiles": len(group),
            "error_ms": {
                kind: _mean_ms([errors[kind] for _, errors in group]) for kind in WORLDS["delays"]
            },
        }
        for group in groups
        if len(group) > 1
    ]


def _mean_ms(errors: Sequence[float]) -> list[float]:
    """Mean and half-width."""
    mean = plain_mean([errors])
    return [1e3 * mean.value, 1e3 * (mean.half_width or math.nan)]


def _launches(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What every launch gave; kept as soon as it is there."""
    with bursts() if options.bursts else contextlib.nullcontext():
        for name in options.only or WORLDS:
            for seed in range(options.seed, options.seed + options.launches):
                experiment = _experiment(name, options.uneven, seed)
                found = intervals_in(experiment, options.profiles, options.rounds)
                launch = {
                    "world": name,
                    "bursts": options.bursts,
                    "uneven": options.uneven,
                    "rounds": options.rounds,
                    "seed": seed,
                    "at": round(time.time()),
                    **found,
                }
                if options.append is not None:
                    slices.keep(launch, options.append)
                yield launch


def intervals_in(experiment: Experiment, profiles: int, rounds: int) -> dict[str, Any]:
    """One launch, cut into profiles: of each what was stolen meanwhile, value, low and high."""
    recording = _record(experiment, profiles * rounds)
    recorded, machine = recording.rounds, recording.facts[0].machine
    parts = [recorded[first : first + rounds] for first in range(0, len(recorded), rounds)]
    truth = experiment.world.truth()
    return {
        "stolen": [round(stolen_fraction(_blocks(part), machine), 4) for part in parts],
        "kinds": {
            kind: {
                "truth": truth[kind],
                "found": [_ends(Times.of(part).stall(STALL_BY_NAME[kind])) for part in parts],
            }
            for kind in WORLDS[experiment.name]
        },
    }


def _blocks(rounds: Sequence[Round]) -> list[Block]:
    return [block for one in rounds for block in one.blocks]


def _ends(estimate: Estimate) -> list[float]:
    assert estimate.low is not None and estimate.high is not None
    return [estimate.value, estimate.low, estimate.high]


def _told(launches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many intervals hold the truth, by kind; machines that were disturbed are told apart."""
    told: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in launches:
        alike = (one["bursts"], one["uneven"], one["rounds"], _undisturbed(one), one["world"])
        for kind in one["kinds"]:
            told.setdefault((*alike, kind), []).append(one)
    return [
        {
            "kind": kind,
            "bursts": loaded,
            "uneven": uneven,
            "rounds": rounds,
            "undisturbed": undisturbed,
            "world": world,
            **_covered(kind, alike),
        }
        for (loaded, uneven, rounds, undisturbed, world, kind), alike in told.items()
    ]


def _undisturbed(launch: dict[str, Any]) -> bool:
    """Whether less was stolen than a profile warns of; no where nobody looked."""
    return "stolen" in launch and statistics.mean(launch["stolen"]) <= STEAL_FRACTION


def _covered(kind: str, launches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (truth,) = {one["kinds"][kind]["truth"] for one in launches}  # of one world
    by_launch = [one["kinds"][kind]["found"] for one in launches]
    found = [ends for of_one in by_launch for ends in of_one]
    error = plain_mean([[value - truth for value, _, _ in of_one] for of_one in by_launch])
    return {
        "profiles": len(found),
        "covered": sum(_holds(ends, truth) for ends in found),
        "covered_by_launch": [sum(_holds(ends, truth) for ends in of_one) for of_one in by_launch],
        "stolen_percent": _stolen_percent(launches),
        "truth_ms": 1e3 * truth,
        "mean_error_ms": 1e3 * error.value,
        "error_half_width_ms": 1e3 * (error.half_width or math.nan),  # of launches
        "mean_half_width_ms": 1e3 * statistics.mean((high - low) / 2 for _, low, high in found),
    }


def _stolen_percent(launches: Sequence[dict[str, Any]]) -> float | None:
    """Of the processors' time, over all profiles; none where some did not look at it."""
    if not all("stolen" in one for one in launches):
        return None
    return 100 * statistics.mean(part for one in launches for part in one["stolen"])


def _holds(ends: Sequence[float], truth: float) -> bool:
    _, low, high = ends
    return low <= truth <= high


def _line(one: dict[str, Any]) -> str:
    loaded = ", loaded in bursts" if one["bursts"] else ""
    return (
        f"{one['kind']}{loaded}: {one['covered']} of {one['profiles']} intervals hold the truth of "
        f"{one['truth_ms']:.3f} ms; mean half-width {one['mean_half_width_ms']:.3f} ms; mean "
        f"error {one['mean_error_ms']:+.3f} +- {one['error_half_width_ms']:.3f} ms"
    )


def _experiment(name: str, uneven: float, seed: int) -> Experiment:
    """Only with the steps whose differences its kinds are."""
    world = _world(name, uneven)
    wanted = {step for kind in WORLDS[name] for _, step in STALL_BY_NAME[kind].terms}
    return Experiment(
        name=name,
        group="coverage",
        about="",
        world=replace(world, samples_per_batch=1, seed=seed),
        steps=tuple(step for step in ALL_STEPS if step in wanted),
    )


def _world(name: str, uneven: float) -> World:
    """A fifth of an iteration of every kind, or what compute hides."""
    seconds = ITERATION_SECONDS[name]
    if name != "hidden":
        kinds = dict.fromkeys(WORLDS[name], AMOUNT)
        return world_with(**kinds, iteration_seconds=seconds, uneven=uneven)
    return World(
        iteration_seconds=seconds,
        uneven_seconds=uneven * seconds,
        exchange_seconds=HIDDEN_EXCHANGE * seconds,
        prepare_seconds=HIDDEN_PREPARE * seconds,
        loader_workers=1,
    )


def _record(experiment: Experiment, rounds: int) -> Recording:
    recording = Recording()
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
            seed=experiment.world.seed,
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
    parser.add_argument("--seed", type=int, default=0, help="of the first launch")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="of one profile")
    parser.add_argument("--only", nargs="+", choices=tuple(WORLDS), metavar="WORLD")
    parser.add_argument("--uneven", type=float, default=UNEVEN, help="0: an ideal device")
    parser.add_argument("--bursts", action="store_true", help="load the machine meanwhile")
    parser.add_argument("--append", type=Path, metavar="FILE", help="keep every launch here")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="tell what is kept there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
