"""Checks over the rounds: the limits at which a number stops meaning what it says."""

from __future__ import annotations

from typing import Any

import pytest

from profiles import HAND_WORKED, disturbance, machine, rounds_of
from stash.results.recording import Check
from stash.results.validity import checks_of


def checks(device: str = "cuda", **block_changes: Any) -> dict[str, Check]:
    rounds = rounds_of([[HAND_WORKED] * 3], **block_changes)
    return {check.name: check for check in checks_of(rounds, machine(device=device))}


@pytest.mark.parametrize(("stolen", "status"), [(0.0, "pass"), (0.16, "pass"), (0.2, "warn")])
def test_steal_is_a_warning_above_2_percent_of_all_cores(stolen: float, status: str) -> None:
    found = checks(disturbance=disturbance(cpu_steal_seconds=stolen))["steal"]  # of 8 core-seconds
    assert found.status == status
    assert bool(found.next) == (status == "warn")


@pytest.mark.parametrize(
    ("used", "status", "told"),
    [(-0.01, "pass", " 0%"), (0.79, "pass", " 10%"), (0.8, "warn", " 10%"), (4.0, "warn", " 50%")],
)
def test_programs_of_others_are_a_warning_from_a_tenth_of_all_cores(
    used: float, status: str, told: str
) -> None:
    found = checks(disturbance=disturbance(other_cpu_seconds=used))["other programs"]  # of 8
    assert found.status == status and told in found.message
    assert bool(found.next) == (status == "warn")


def test_rounding_of_single_blocks_is_no_program_of_others() -> None:
    """Blocks that are off by a fifth of the cores in turns, and by nothing together."""
    off = (1.6, -1.6, 1.6, -1.6)
    (one,) = rounds_of([[{"node": 0.1}]])
    blocks = tuple(
        one.blocks[0].model_copy(update={"disturbance": disturbance(other_cpu_seconds=used)})
        for used in off
    )
    found = {c.name: c for c in checks_of([one.model_copy(update={"blocks": blocks})], machine())}
    assert found["other programs"].status == "pass"


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        (("a 10.0.0.1", "a 10.0.0.2"), False),
        (("a", "b"), True),
        (("a", "b", "a"), False),  # it is the first node whose processors are looked at
        (("a", "b 10.0.0.1", "b 10.0.0.2"), True),
    ],
)
def test_nodes_on_one_machine_are_not_taken_for_programs_of_others(
    hosts: tuple[str, ...], told: bool
) -> None:
    rounds = rounds_of([[HAND_WORKED] * 3], disturbance=disturbance(other_cpu_seconds=4.0))
    found = {check.name for check in checks_of(rounds, machine(nodes=len(hosts), hosts=hosts))}
    assert ("other programs" in found) == told


@pytest.mark.parametrize(
    ("read", "status"), [(0, "warn"), (89, "warn"), (90, "pass"), (150, "pass"), (160, "warn")]
)
def test_cold_is_proven_by_the_bytes_read(read: int, status: str) -> None:
    found = checks(loader_read_bytes=read, loader_file_bytes=100)["cold"]
    assert found.status == status
    assert ("page-cache cold" in found.message) == (status == "pass")


@pytest.mark.parametrize(("read", "status"), [(0, "pass"), (10, "pass"), (11, "warn")])
def test_warm_is_proven_by_the_bytes_not_read(read: int, status: str) -> None:
    assert checks(loader_read_bytes=read, loader_file_bytes=100)["warm"].status == status


def test_cold_and_warm_are_each_proven_by_blocks_of_their_own() -> None:
    (one,) = rounds_of([[{"warm": 0.2, "cold": 0.3}]], loader_file_bytes=100)
    read = {"warm": 0, "cold": 100}
    blocks = tuple(b.model_copy(update={"loader_read_bytes": read[b.step]}) for b in one.blocks)
    found = {c.name: c for c in checks_of([one.model_copy(update={"blocks": blocks})], machine())}
    assert (found["cold"].status, found["warm"].status) == ("pass", "pass")


def test_what_cannot_be_counted_is_not_claimed() -> None:
    assert set(checks()) == {"steal"}
    assert set(checks(loader_read_bytes=5, loader_file_bytes=0)) == {"steal"}


@pytest.mark.parametrize(("busy", "status"), [(4.0, "pass"), (4.1, "warn")])
def test_an_emulation_may_use_half_of_the_machine(busy: float, status: str) -> None:
    found = checks("emulated:v100", disturbance=disturbance(cpu_busy_seconds=busy))
    assert found["emulation headroom"].status == status


def test_preprocessing_does_not_count_against_an_emulation() -> None:
    rounds = rounds_of([[{"warm": 0.2}]], disturbance=disturbance(cpu_busy_seconds=8.0))
    found = {check.name: check for check in checks_of(rounds, machine(device="emulated:v100"))}
    assert found["emulation headroom"].status == "pass"


def test_blocks_without_any_time_warn_of_nothing() -> None:
    assert checks(disturbance=disturbance(wall_seconds=0.0))["steal"].status == "pass"
