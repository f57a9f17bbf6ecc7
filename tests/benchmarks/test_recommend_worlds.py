"""The worlds tell the truth by a road of their own, and the recommendation is near it."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import recommend_worlds
import rental_worlds


def test_the_simulator_shares_no_code_with_the_predictor() -> None:
    tree = ast.parse(Path(rental_worlds.__file__).read_text())
    modules = {
        name
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [one.name for one in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert {one for one in modules if one.startswith("stash")} <= {
        "stash.hardware",
        "stash.hardware.catalog",
    }


def test_a_world_is_the_same_every_time_and_more_nodes_exchange_more() -> None:
    one, again = rental_worlds.world(3), rental_worlds.world(3)
    assert one == again
    machine = next(n for n, m in enumerate(one.machines) if m.gpus == 8)
    times = [one.iteration_seconds(machine, nodes) for nodes in (1, 2, 4, 8)]
    assert times == sorted(times)
    assert times[0] > one.solo_seconds(machine)


def test_a_few_profiles_beat_rules_of_thumb() -> None:
    ours, flops, gpu_hour = [], [], []
    for number in range(24):
        case = recommend_worlds.case(number)
        random = np.random.default_rng(number)
        seen: list = []
        for _ in range(recommend_worlds.PROFILES):
            decision = case.decide(seen)
            seen.append(case.profile(recommend_worlds.ours(case, decision, random), random))
        ours.append(case.regret(case.choice(case.decide(seen))))
        flops.append(case.regret(recommend_worlds.per_flops(case, seen)))
        gpu_hour.append(case.regret(recommend_worlds.per_gpu_hour(case)))
    assert np.median(ours) <= 0.01
    assert np.quantile(ours, 0.9) <= 0.1
    for thumb in (flops, gpu_hour):
        assert np.mean(ours) <= 0.5 * np.mean(thumb)
        assert np.quantile(ours, 0.9) <= 0.5 * np.quantile(thumb, 0.9)


def test_regret_counts_money_and_missed_limits() -> None:
    case = recommend_worlds.case(1)
    assert case.deadline is not None
    kept = np.flatnonzero(case.hours <= case.deadline)
    best = int(kept[np.argmin(case.cost[kept])])
    assert case.regret(best) == 0.0
    late = int(np.argmax(case.hours))
    assert case.regret(late) >= case.hours[late] / case.deadline - 1
