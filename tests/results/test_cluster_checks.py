"""Checks of a run on several nodes: who is slow, and what an epoch is put together from."""

from __future__ import annotations

import pytest

from profiles import block, machine
from stash.results.recording import Block, Check, Round
from stash.results.validity import checks_of

MACHINE = machine(nodes=2, workers_per_node=2, hosts=("a", "b"))
STEPS = {"node": 0.130, "warm": 0.200, "scaleout": 0.180}


def found(rounds: list[Round]) -> dict[str, Check]:
    return {check.name: check for check in checks_of(rounds, MACHINE)}


def unsynced(number: int, node_1: tuple[float, float]) -> Block:
    """Node 0 runs the step, node 1 catches up afterwards; a trifle changes from round to round."""
    jitter = 1 + 0.001 * (number % 3)
    held = tuple(2 * jitter * seconds for seconds in node_1)
    return block(
        "unsynced",
        0.1,
        seconds=(0.2 * jitter, 0.2 * jitter, None, None),
        held_seconds=(None, None, *held),
    )


def rounds_with(node_1: tuple[float, float]) -> list[Round]:
    return [
        Round(launch=0, number=n, at_seconds=float(n), blocks=(unsynced(n, node_1),))
        for n in range(8)
    ]


def test_workers_of_one_pace_pass() -> None:
    assert found(rounds_with((0.1, 0.1)))["pace"].status == "pass"


def test_a_slow_node_is_told_with_its_host() -> None:
    check = found(rounds_with((0.12, 0.12)))["pace"]
    assert check.status == "warn"
    assert "All workers of node 1 (b) are slower" in check.message
    assert "by up to 9%" in check.message  # 0.12 against a mean of 0.11


def test_a_slow_worker_is_told_with_its_number_and_host() -> None:
    check = found(rounds_with((0.1, 0.14)))["pace"]
    assert check.status == "warn"
    assert "On node 1 (b), worker 3 is slower" in check.message


def test_a_slow_node_of_one_worker_is_told_from_step_node() -> None:
    """Nothing else is measured there in which nobody waits."""
    alone = machine(nodes=2, workers_per_node=1, hosts=("a", "b"))
    rounds = [
        Round(
            launch=0,
            number=number,
            at_seconds=float(number),
            blocks=(
                block(
                    "node",
                    0.1,
                    seconds=(0.2 + 0.0002 * (number % 3), None),
                    held_seconds=(None, 0.24 + 0.0002 * (number % 2)),
                ),
                block("scaleout", 0.18),
            ),
        )
        for number in range(8)
    ]
    check = {one.name: one for one in checks_of(rounds, alone)}["pace"]
    assert check.status == "warn"
    assert "All workers of node 1 (b) are slower" in check.message


def one_round(number: int) -> Round:
    blocks = tuple(block(step, seconds) for step, seconds in STEPS.items())
    return Round(launch=0, number=number, at_seconds=float(number), blocks=blocks)


def test_what_an_epoch_on_several_nodes_is_made_of_is_told_with_its_bounds() -> None:
    check = found([one_round(n) for n in range(3)])["epochs"]
    assert check.status == "warn"
    assert "250 ms" in check.message and "200 ms" in check.message


def test_one_node_has_neither_check() -> None:
    names = {check.name for check in checks_of(rounds_with((0.1, 0.1)), machine())}
    assert not names & {"pace", "epochs"}


def rounds_without(*missing: str) -> list[Round]:
    return [
        one.model_copy(update={"blocks": tuple(b for b in one.blocks if b.step not in missing)})
        for one in (one_round(0), one_round(1))
    ]


def test_without_data_nothing_is_put_together() -> None:
    assert "epochs" not in found(rounds_without("warm"))


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (("node",), "node"),
        (("scaleout",), "scaleout"),
        (("scaleout", "node"), "scaleout and node"),
        (("scaleout", "warm"), "scaleout"),  # no data: node alone still is not all nodes
    ],
)
def test_a_step_that_an_epoch_on_several_nodes_lacks_is_named(
    missing: tuple[str, ...], named: str
) -> None:
    check = found(rounds_without(*missing))["epochs"]
    assert check.status == "warn"
    assert f"not known without {named}:" in check.message
    assert check.next.startswith(f"Add {named} to --steps")


def across(*scaleout: float) -> list[Round]:
    return [
        Round(
            launch=0,
            number=number,
            at_seconds=float(number),
            blocks=(block("node", 0.1), block("scaleout", seconds + 0.001 * (number % 2))),
        )
        for number, seconds in enumerate(scaleout)
    ]


def test_a_link_that_becomes_slower_is_told_with_both_times() -> None:
    check = found(across(*[0.15] * 6, *[0.3] * 6))["steady network"]
    assert check.status == "warn"
    assert "50.5 ms" in check.message and "200 ms" in check.message


def test_a_link_that_stays_as_it_is_passes() -> None:
    assert found(across(*[0.15] * 12))["steady network"].status == "pass"
    assert found(across(*[0.15] * 10))["steady network"].status == "pass"
    assert "steady network" not in found(across(*[0.15] * 9))


def test_a_link_that_becomes_faster_is_told_as_well() -> None:
    assert found(across(*[0.3] * 6, *[0.15] * 6))["steady network"].status == "warn"


def test_halves_that_differ_no_more_than_their_rounds_do_pass() -> None:
    first = [0.15, 0.25, 0.20, 0.30, 0.10, 0.20]
    assert found(across(*first, *(t + 0.03 for t in first)))["steady network"].status == "pass"
