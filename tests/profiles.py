"""Recordings and profiles for tests, built from given step times rather than from a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np

from stash.results.assemble import Outcome, Recording, assemble
from stash.results.profile import Profile
from stash.results.recording import (
    Block,
    Calibration,
    Check,
    Disturbance,
    End,
    Facts,
    MachineFacts,
    Rate,
    Round,
    WorkloadFacts,
)

CREATED = datetime(2025, 3, 4, 5, 6, 7, tzinfo=timezone.utc)

#: An iteration whose stalls can be worked out by hand: see test_stall_table.py.
HAND_WORKED = {"solo": 0.100, "unsynced": 0.110, "node": 0.130, "warm": 0.200, "cold": 0.250}


def workload(**changes: Any) -> WorkloadFacts:
    """A small image classifier."""
    return WorkloadFacts(
        **{
            "name": "resnet18",
            "parameters": 11_689_512,
            "gradient_bytes": 46_758_048,
            "optimizer": "SGD",
            "batch_per_worker": 32,
            "samples": 10_000,
            "data": "images",
            "data_bytes": 1_000_000_000,
            "loader_workers": 2,
            "dtype": "fp32",
            **changes,
        }
    )


def machine(**changes: Any) -> MachineFacts:
    """One node with two workers."""
    return MachineFacts(
        **{
            "host": "node-a",
            "system": "Linux",
            "cpu": "some processor",
            "cores": 8,
            "memory_bytes": 64 * 2**30,
            "device": "cuda",
            "devices": ("Tesla V100", "Tesla V100"),
            "device_memory_bytes": 16 * 2**30,
            "nodes": 1,
            "workers_per_node": 2,
            "cores_per_worker": 4.0,
            "threads_per_worker": 2,
            "pinned": True,
            "backend": "gloo",
            "python": "3.11.7",
            "torch": "2.13.0",
            "stash": "0.1.0",
            **changes,
        }
    )


def disturbance(**changes: Any) -> Disturbance:
    """A quiet machine: half of 8 cores busy for a second, nothing stolen."""
    return Disturbance(
        **{
            "wall_seconds": 1.0,
            "cpu_busy_seconds": 4.0,
            "cpu_steal_seconds": 0.0,
            "disk_read_bytes": 0,
            "network_bytes": 0,
            "memory_used_bytes": 2**30,
            "clock_mhz": None,
            "device_busy_percent": None,
            "device_memory_used_bytes": None,
            **changes,
        }
    )


def block(step: str, seconds_per_iteration: float, **changes: Any) -> Block:
    """One block in which the second worker is the slower one."""
    iterations = changes.pop("iterations", 2)
    slowest = seconds_per_iteration * iterations
    return Block(
        **{
            "step": step,
            "iterations": iterations,
            "seconds": (slowest, None) if step == "solo" else (0.9 * slowest, slowest),
            "lead_in_iterations": 0,
            "lead_in_seconds": (),
            "loader_read_bytes": None,
            "loader_file_bytes": None,
            "disturbance": disturbance(),
            **changes,
        }
    )


def calibration(**changes: Any) -> Calibration:
    """A calibration whose loaders start in half a second and persist."""
    return Calibration(
        **{
            "warm_up_iterations": 10,
            "warm_up_settled": True,
            "block_iterations": {},
            "lead_in_iterations": {},
            "window_batches": 8,
            "window_samples": 256,
            "replay_batches": 4,
            "replay_shapes_vary": False,
            "loader_start_seconds": 0.5,
            "loader_persistent": True,
            "seed": 1,
            **changes,
        }
    )


def facts(**changes: Any) -> Facts:
    """What a gang knows once it has calibrated."""
    return Facts(
        **{
            "launch": 0,
            "workload": workload(),
            "machine": machine(),
            "calibration": calibration(),
            "preprocessing": Rate(samples_per_second=(318.0, 320.0, 322.0)),
            "storage": Rate(samples_per_second=(255.0, 256.0, 257.0)),
            "checks": (Check(name="pinned", status="pass", message="Workers are pinned."),),
            **changes,
        }
    )


def rounds_of(
    launches: Sequence[Sequence[Mapping[str, float]]], **block_changes: Any
) -> list[Round]:
    """Rounds from seconds per iteration: one mapping of steps a round, one list a launch."""
    return [
        Round(
            launch=launch,
            number=number,
            at_seconds=10.0 * (number + 1),
            blocks=tuple(block(step, seconds, **block_changes) for step, seconds in one.items()),
        )
        for launch, rounds in enumerate(launches)
        for number, one in enumerate(rounds)
    ]


def noisy(
    steps: Mapping[str, float], *, rounds: int = 20, noise_seconds: float = 0.002, seed: int = 0
) -> list[dict[str, float]]:
    """Rounds around given step times, with independent normal noise on each."""
    random = np.random.default_rng(seed)
    return [
        {
            step: max(1e-6, seconds + noise_seconds * random.standard_normal())
            for step, seconds in steps.items()
        }
        for _ in range(rounds)
    ]


def recording_of(
    launches: Sequence[Sequence[Mapping[str, float]]],
    *,
    end: End | None = None,
    facts_changes: Mapping[str, Any] | None = None,
    **block_changes: Any,
) -> Recording:
    """A whole recording from seconds per iteration."""
    last = end or End(
        launch=len(launches) - 1, reason="half-width", checks=(), peak_device_memory_bytes=()
    )
    return Recording(
        facts=[
            facts(**{**(facts_changes or {}), "launch": launch}) for launch in range(len(launches))
        ],
        rounds=rounds_of(launches, **block_changes),
        ends=[last],
    )


def profile_of(
    rounds: Sequence[Mapping[str, float]] | None = None,
    *,
    workload_changes: Mapping[str, Any] | None = None,
    machine_changes: Mapping[str, Any] | None = None,
    failure: str | None = None,
    interrupted: bool = False,
    **changes: Any,
) -> Profile:
    """The profile of one launch; without rounds, of the hand-worked steps with a little noise."""
    given = noisy(HAND_WORKED) if rounds is None else rounds
    known = {
        "workload": workload(**(workload_changes or {})),
        "machine": machine(**(machine_changes or {})),
        **changes.pop("facts_changes", {}),
    }
    recording = recording_of([given], facts_changes=known, **changes)
    return assemble(
        recording,
        Outcome(
            id="3f2a9c01",
            created=CREATED,
            half_width_asked=0.03,
            failure=failure,
            interrupted=interrupted,
        ),
    )
