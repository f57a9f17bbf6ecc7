"""Does the recommendation find the best machine? 200 worlds in which the truth is known.

python benchmarks/recommend_worlds.py [--short] [--first 800]

Three questions: the regret of the choice after profiles of a few machines, beside two rules of
thumb; the dollars of probing until the choice is within 5 % of the best, beside other ways to pick
probes; and the time of a search over the whole catalog.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402 - after the number of threads
import rental_worlds  # noqa: E402
from rental_worlds import READING, World  # noqa: E402
from scipy.stats import norm  # noqa: E402

import stash  # noqa: E402
from stash.advise import candidates, probe  # noqa: E402
from stash.advise.candidates import Grid  # noqa: E402
from stash.advise.recommend import decide  # noqa: E402
from stash.advise.recommend_belief import Observation, Timing, believe  # noqa: E402
from stash.advise.recommend_choose import choose, sensitivity  # noqa: E402
from stash.advise.recommend_document import Decision  # noqa: E402
from stash.advise.recommend_job import Work  # noqa: E402
from stash.advise.recommendation import Assumptions  # noqa: E402
from stash.predict.facts import ModelFacts  # noqa: E402

WORLDS, SHORT_WORLDS = 200, 20
PROFILES, MAX_PROFILES, MAX_PROBES = 4, 5, 40
CLOSE = 0.05
#: Probing is counted apart, so the job itself pays for none.
ASSUMED, PROBING = Assumptions(profiling_seconds=0.0), Assumptions()
OVERHEAD = ASSUMED.setup_seconds
PROBE_HOURS = (PROBING.setup_seconds + PROBING.profiling_seconds) / 3600


Picker = Callable[["Case", Decision, np.random.Generator], int]


@dataclass(frozen=True, eq=False)
class Case:
    """One question in one world, with the truth of every way to rent."""

    world: World
    known: ModelFacts
    ways: Grid
    hours: np.ndarray
    cost: np.ndarray
    deadline: float | None
    budget: float | None

    def regret(self, row: int) -> float:
        """Cost (or time) over the best possible; a limit that is missed counts by its overrun."""
        kept = np.isfinite(self.hours)
        overrun = 0.0
        if self.deadline is not None:
            kept = self.hours <= self.deadline
            overrun = self.hours[row] / self.deadline - 1
            counted = self.cost
        else:
            assert self.budget is not None
            kept = self.cost <= self.budget
            overrun = self.cost[row] / self.budget - 1
            counted = self.hours
        return float(max(counted[row] / counted[kept].min() - 1, overrun))

    def decide(self, seen: list[Observation]) -> Decision:
        work = Work(samples=self.world.samples, epochs=self.world.epochs, batch=self.world.batch)
        belief = believe(self.ways, self.known, self.world.batch, "amp", seen)
        return decide(self.ways, belief, work, ASSUMED, "usd", self.deadline, self.budget)

    def choice(self, decision: Decision) -> int:
        """What a user would rent; where all seems infeasible, what overruns least."""
        row = choose(decision.jobs, decision.rule)
        if row is None:
            jobs = decision.jobs
            row = int(np.argmin(jobs.hours if self.deadline is not None else jobs.cost))
        return row

    def profile(self, row: int, random: np.random.Generator) -> Observation:
        """A noisy measurement of one machine, or of two of them."""
        machine, nodes = int(self.ways.instance[row]), int(self.ways.nodes[row])

        def read(seconds: float) -> Timing:
            return Timing(seconds * math.exp(random.normal(0, READING)), READING)

        return Observation(
            gpu=self.ways.gpus[machine],
            batch=self.world.batch,
            dtype="amp",
            solo=read(self.world.solo_seconds(machine)),
            rows=((row, read(self.world.iteration_seconds(machine, nodes))),),
        )

    def price_of_probe(self, row: int) -> float:
        price = self.ways.of(row).price_usd_per_hour
        assert price is not None
        return float(self.ways.nodes[row]) * price * PROBE_HOURS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="20 worlds instead of 200")
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    asked = parser.parse_args()
    worlds = SHORT_WORLDS if asked.short else WORLDS
    cases = [case(number) for number in range(asked.first, asked.first + worlds)]
    ways = [len(one.ways) for one in cases]
    print(json.dumps({"first": asked.first, "worlds": worlds, "ways": [min(ways), max(ways)]}))
    print_regret(cases)
    print_probing(cases)
    print_search()


def case(number: int) -> Case:
    world = rental_worlds.world(number)
    ways = candidates.grid(world.machines, rental_worlds.MAX_NODES)
    pairs = [(int(m), int(n)) for m, n in zip(ways.instance, ways.nodes, strict=True)]
    hours = np.array([world.hours(machine, nodes, OVERHEAD) for machine, nodes in pairs])
    prices = np.array([one.price_usd_per_hour for one in world.machines])[ways.instance]
    cost = hours * prices * ways.nodes
    random = np.random.default_rng(40_000 + number)
    deadline, budget = None, None
    cheapest, fastest = int(np.argmin(cost)), int(np.argmin(hours))
    between = random.uniform(0.1, 0.9)
    if number % 4 == 0:
        deadline = 1e5  # no hurry: the cheapest of all
    elif number % 4 == 3:
        budget = math.exp(
            (1 - between) * math.log(cost[cheapest]) + between * math.log(cost[fastest])
        )
    else:
        deadline = math.exp(
            (1 - between) * math.log(hours[fastest]) + between * math.log(hours[cheapest])
        )
    return Case(world, _facts(world), ways, hours, cost, deadline, budget)


def print_regret(cases: list[Case]) -> None:
    """After each of a few profiles, beside the rules of thumb."""
    for name, pick in (("largest improvement", strongest), ("improvement per dollar", ours)):
        found: list[list[float]] = [[] for _ in range(MAX_PROFILES + 1)]
        flops, gpu_hour = [], []
        for one in cases:
            random = np.random.default_rng(60_000 + one.world.number)
            seen: list[Observation] = []
            for count in range(MAX_PROFILES + 1):
                decision = one.decide(seen)
                found[count].append(one.regret(one.choice(decision)))
                if count == PROFILES:
                    flops.append(one.regret(per_flops(one, seen)))
                    gpu_hour.append(one.regret(per_gpu_hour(one)))
                seen.append(one.profile(pick(one, decision, random), random))
        for count, regrets in enumerate(found):
            print(json.dumps({"profiled_by": name, "profiles": count, **summary(regrets)}))
    print(json.dumps({"rule": "cheapest per FLOPS", **summary(flops)}))
    print(json.dumps({"rule": "cheapest per GPU-hour", **summary(gpu_hour)}))


def print_probing(cases: list[Case]) -> None:
    """Dollars of probing until the choice is within 5 % of the best."""
    for name, pick in (
        ("ours", ours),
        ("plain_expected_improvement", plain),
        ("random", at_random),
    ):
        spent, probes, missed = [], [], 0
        for one in cases:
            dollars, count, reached = probing(one, pick)
            spent.append(dollars)
            probes.append(count)
            missed += not reached
        print(
            json.dumps(
                {
                    "probing": name,
                    "mean_usd": round(float(np.mean(spent)), 3),
                    "median_usd": round(float(np.median(spent)), 3),
                    "p90_usd": round(float(np.quantile(spent, 0.9)), 3),
                    "mean_probes": round(float(np.mean(probes)), 2),
                    "not_reached": missed,
                }
            )
        )


def probing(one: Case, pick: Picker) -> tuple[float, int, bool]:
    """Dollars and probes until the choice is close to the best, and whether it ever was."""
    random = np.random.default_rng(80_000 + one.world.number)
    seen: list[Observation] = []
    spent = 0.0
    for count in range(MAX_PROBES + 1):
        decision = one.decide(seen)
        if one.regret(one.choice(decision)) <= CLOSE:
            return spent, count, True
        row = pick(one, decision, random)
        seen.append(one.profile(row, random))
        spent += one.price_of_probe(row)
    return spent, MAX_PROBES, False


def ours(one: Case, decision: Decision, random: np.random.Generator) -> int:
    found = probe.probes(one.ways, decision.belief, decision.jobs, decision.rule, PROBING)
    assert found is not None
    return int(found.rows[found.best])


def strongest(one: Case, decision: Decision, random: np.random.Generator) -> int:
    """The probe that improves the decision most, whatever it costs."""
    found = probe.probes(one.ways, decision.belief, decision.jobs, decision.rule, PROBING)
    assert found is not None
    return int(found.rows[found.strongest])


def plain(one: Case, decision: Decision, random: np.random.Generator) -> int:
    """Expected improvement of a way over the best one, whatever its probe costs."""
    jobs, rule, belief = decision.jobs, decision.rule, decision.belief
    scores = rule.score(jobs.hours, jobs.cost)
    kept = rule.keep(jobs.hours, jobs.cost)
    best = scores[kept].min() if kept.any() else scores.max()
    spread = np.sqrt(belief.variance) * sensitivity(jobs)
    ahead = (best - scores) / spread
    gain = spread * (ahead * norm.cdf(ahead) + norm.pdf(ahead))
    # A way that misses its limit improves nothing, unless it turns out faster than believed.
    limit = rule.deadline_hours if rule.deadline_hours is not None else rule.budget
    counted = jobs.hours if rule.deadline_hours is not None else jobs.cost
    gain = gain * norm.cdf(np.log(limit / counted) / spread)
    gain[list(belief.measured)] = -1.0
    return int(np.argmax(gain))


def at_random(one: Case, decision: Decision, random: np.random.Generator) -> int:
    fresh = [
        row
        for row in np.flatnonzero(one.ways.nodes <= probe.MAX_PROBE_NODES)
        if row not in decision.belief.measured
    ]
    return int(random.choice(fresh))


def per_flops(one: Case, seen: list[Observation]) -> int:
    """Most FLOPS for a dollar; as many as its FLOPS need, at the rate that the profiles reached."""
    flops = np.array([gpu.flops["amp"] for gpu in one.ways.gpus])
    counts = np.array([i.gpus for i in one.ways.instances])
    work = 3 * sum(layer.flops for layer in one.world.layers)
    reached = np.mean(
        [work * one.world.batch / (o.solo.seconds * o.gpu.flops["amp"]) for o in seen]
    )
    total = work * one.world.samples * one.world.epochs
    alone = total / (flops * counts * reached) / 3600
    return _by_thumb(one, prices(one) / (flops * counts), alone)


def per_gpu_hour(one: Case) -> int:
    """The cheapest GPUs; each machine's own time on one node is known for nothing."""
    counts = np.array([i.gpus for i in one.ways.instances])
    alone = np.array([one.world.hours(m, 1, 0.0) for m in range(len(counts))])
    return _by_thumb(one, prices(one) / counts, alone)


def prices(one: Case) -> np.ndarray:
    return np.array([i.price_usd_per_hour for i in one.ways.instances])


def _by_thumb(one: Case, ranking: np.ndarray, hours_alone: np.ndarray) -> int:
    """The first machine of the ranking that keeps the limit if it scales linearly."""
    for machine in np.argsort(ranking):
        rows = np.flatnonzero(one.ways.instance == machine)
        hours = OVERHEAD / 3600 + hours_alone[machine] / one.ways.nodes[rows]
        cost = hours * prices(one)[machine] * one.ways.nodes[rows]
        if one.deadline is not None and (hours <= one.deadline).any():
            return int(rows[np.argmin(np.where(hours <= one.deadline, cost, np.inf))])
        if one.budget is not None and (cost <= one.budget).any():
            return int(rows[np.argmin(np.where(cost <= one.budget, hours, np.inf))])
    return int(np.argmin(one.ways.nodes))


def print_search() -> None:
    """The whole catalog at 16 node counts, once layers are known."""

    def search(**more: object) -> tuple[float, int]:
        start = time.perf_counter()
        found = stash.recommend(
            "resnet50", samples=1_281_167, epochs=90, dtype="amp", deadline_hours=6.0, max_nodes=16,
            data_bytes=133e9, samples_per_core=300.0, retired=True, **more,
        )  # fmt: skip
        return time.perf_counter() - start, len(found.candidates)

    search()
    for name, more in (("recommend", {}), ("with_next_probe", {"next_probe": True})):
        seconds, ways = min(search(**more) for _ in range(3))
        print(json.dumps({"search": name, "ways": ways, "seconds": round(seconds, 3)}))


def _facts(world: World) -> ModelFacts:
    """The world's net in the words that the recommender understands."""
    zeros = [0.0] * len(world.layers)
    return ModelFacts(
        name=f"world {world.number}",
        flops=np.array([zeros, [layer.flops for layer in world.layers]]),
        bytes=np.array([zeros, [2 * layer.moved_bytes for layer in world.layers]]),
        convolution=np.array([layer.convolution for layer in world.layers]),
        gradients=tuple((n, layer.parameters) for n, layer in enumerate(world.layers)),
        parameters=sum(layer.parameters for layer in world.layers),
        activation_bytes=(0.0, 1.0),
        optimizer="SGD",
        batch_size=world.batch,
    )


def summary(regrets: list[float]) -> dict[str, float]:
    return {
        "median_percent": round(100 * float(np.median(regrets)), 2),
        "mean_percent": round(100 * float(np.mean(regrets)), 2),
        "p90_percent": round(100 * float(np.quantile(regrets, 0.9)), 2),
        "best_found_percent": round(100 * float(np.mean(np.array(regrets) <= 1e-9)), 1),
    }


if __name__ == "__main__":
    main()
