"""Known stalls go in, the same stalls come out: `make truth` in short, with wide margins.

The closed forms and the pages are tested on numbers worked out by hand.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import truth
import truth_numbers
import truth_report
from recurrence import LINK_BURST, Message, exchange_stall, messages
from truth_experiments import (
    ALL_STEPS,
    AMOUNTS,
    NETWORK_WORLD,
    Experiment,
    experiments,
    world_with,
)
from truth_worlds import World

from stash.errors import StashError
from stash.lab import resources, words
from stash.lab.network import Link

#: Of an iteration. What a noisy machine does to a trimmed mean of a few rounds stays far below.
MARGIN = 0.1
#: Two may be spoiled to either side. With one, as of five, the machine's host can take so much time
#: that an interval does not tell half an iteration from nothing.
ROUNDS = 10

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="a throttled disk needs root: run the tests as root"
)


def profile_of(world: World, steps: tuple[str, ...]) -> dict[str, Any]:
    short = Experiment(name="short", group="short", about="", world=world, steps=steps)
    result, _ = truth.run(short, minutes=3, rounds=ROUNDS)
    return result


def check(result: dict[str, Any], **injected: float) -> None:
    for stall, amount in injected.items():
        measured = result["measured"][stall]
        assert result["truth_seconds"][stall] / result["iteration_seconds"] == pytest.approx(amount)
        error = measured["estimate"] / result["iteration_seconds"] - amount
        assert abs(error) < MARGIN, (stall, result)
        assert measured["significant"] or amount == 0, (stall, result)


@pytest.mark.gang
def test_delays_beside_a_neighbour_and_in_the_data_come_out_as_contention_and_prep() -> None:
    world = world_with(contention=0.5, prep=0.5, iteration_seconds=0.15)
    result = profile_of(world, ("solo", "unsynced", "node", "warm"))
    check(result, contention=0.5, communication=0, prep=0.5)


@pytest.mark.proof
@pytest.mark.gang
@pytest.mark.root
@needs_root
def test_a_slow_exchange_and_a_throttled_disk_come_out_as_communication_and_fetch(
    tmp_path: Path,
) -> None:
    try:
        with resources.storage(tmp_path, "1MB/s"):
            pass
    except StashError as error:
        pytest.skip(f"{error}")
    world = world_with(communication=0.5, fetch=0.5, iteration_seconds=0.15)
    result = profile_of(world, ("unsynced", "node", "warm", "cold"))
    check(result, communication=0.5, prep=0, fetch=0.5)


def test_messages_wait_for_their_gradients_and_for_each_other() -> None:
    """Ready at 1 and 2; each takes 0.5 and a second for ten bytes."""
    sent = [Message(1.0, 10), Message(2.0, 20)]
    # 1.0 to 2.5, then 2.5 to 5.0: one second after a backward pass of four.
    stall = exchange_stall(sent, 4.0, latency_seconds=0.5, bytes_per_second=10)
    assert stall == pytest.approx(1.0)
    assert exchange_stall(sent, 6.0, latency_seconds=0.5, bytes_per_second=10) == 0


def test_a_link_that_is_fast_enough_only_exposes_the_last_message() -> None:
    sent = [Message(1.0, 10), Message(4.0, 20)]
    assert exchange_stall(sent, 4.0, bytes_per_second=100) == pytest.approx(0.2)


def test_a_link_that_was_idle_lets_a_burst_pass_at_once() -> None:
    """The bucket is full at first, full again for the second message, empty for the third."""
    sent = [Message(1.0, 10), Message(2.3, 20), Message(2.4, 20)]
    # 1.0 to 1.8, as 0.2 are free; 2.3 to 4.1; 4.1 to 6.1, as nothing was idle.
    stall = exchange_stall(sent, 5.0, bytes_per_second=10, burst_seconds=0.2)
    assert stall == pytest.approx(1.1)
    assert exchange_stall(sent[:2], 0.0, bytes_per_second=1e9, burst_seconds=1) == 2.3


def test_what_a_message_leaves_in_the_bucket_is_there_for_the_next() -> None:
    sent = [Message(1.0, 3), Message(1.1, 30)]
    # Of 0.5 the first takes 0.3; 0.1 come in until the second, which takes 3.0 and has 0.3 free.
    stall = exchange_stall(sent, 0.0, bytes_per_second=10, burst_seconds=0.5)
    assert stall == pytest.approx(1.1 + 3.0 - 0.3)


def test_a_bucket_fills_while_a_message_is_under_way_but_sends_nothing() -> None:
    sent = [Message(1.0, 30), Message(1.0, 30)]
    # 0.4 until the first sends, with 0.5 free: 3.9. The second finds the 0.4 of its own latency.
    stall = exchange_stall(sent, 0.0, latency_seconds=0.4, bytes_per_second=10, burst_seconds=0.5)
    assert stall == pytest.approx(3.9 + 0.4 + 3.0 - 0.4)


def test_the_small_net_sends_one_message_and_its_tail_hides_it() -> None:
    world = World()
    device = world.accelerator
    (message,) = messages(device)
    assert message.bytes == 4 * (288 + 8 + 288 + 4)
    assert device.gradient_bytes == message.bytes and device.parameters == message.bytes / 4
    assert 0.1 * world.iteration_seconds < world.tail_seconds < 0.3 * world.iteration_seconds
    assert World(tail=False).tail_seconds == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "amounts",
    [
        {"communication": 0.02},
        {"contention": 0.5, "prep": 0.1},
        {"communication": 0.2, "contention": 0.1, "fetch": 0.05},
    ],
)
def test_a_world_has_the_stalls_that_it_was_asked_for(amounts: dict[str, float]) -> None:
    world = world_with(**amounts)
    for stall, seconds in world.truth().items():
        assert seconds / world.iteration_seconds == pytest.approx(amounts.get(stall, 0), abs=1e-9)


def test_a_loader_worker_hides_what_fits_into_an_iteration() -> None:
    loader = {"iteration_seconds": 1.0, "loader_workers": 1}
    assert World(**loader, prepare_seconds=0.6).truth()["prep"] == 0
    assert World(**loader, prepare_seconds=1.3).truth()["prep"] == pytest.approx(0.3)
    both = World(**loader, prepare_seconds=0.6, read_seconds=0.9).truth()
    assert both["prep"] == 0 and both["fetch"] == pytest.approx(0.5)


def test_a_batch_that_a_worker_makes_itself_hides_under_what_its_device_has_queued() -> None:
    world = World(iteration_seconds=1.0, neighbour_seconds=0.5, prepare_seconds=0.4)
    queued = world.tail_seconds + 0.5 + world.accelerator.optimizer_seconds
    assert world.queued_seconds == pytest.approx(queued)
    assert world.truth()["prep"] == 0
    longer = replace(world, prepare_seconds=0.9)
    assert longer.truth()["prep"] == pytest.approx(0.9 - queued)
    exchanging = replace(longer, exchange_seconds=0.1)  # meanwhile the device goes on
    assert exchanging.truth()["prep"] == pytest.approx(0.9 - queued + 0.1)


def test_where_a_script_reads_its_loss_nothing_is_queued_to_hide_a_batch() -> None:
    world = World(neighbour_seconds=0.02, prepare_seconds=0.03, reads_loss=True)
    assert world.truth()["prep"] == pytest.approx(0.03)
    assert replace(world, reads_loss=False).truth()["prep"] == 0


def test_uneven_iterations_have_the_stalls_of_even_ones() -> None:
    world = World(read_seconds=0.3, neighbour_seconds=0.01, loader_workers=1)
    uneven = replace(world, uneven_seconds=0.02)
    assert uneven.truth() == pytest.approx(world.truth())
    plain = world.accelerator
    shortest = plain.forward_seconds + plain.backward_seconds + plain.optimizer_seconds - 0.02
    device = uneven.accelerator
    took = device.forward_seconds + device.backward_seconds + device.optimizer_seconds
    assert took == pytest.approx(shortest)
    with pytest.raises(AssertionError):
        replace(uneven, read_seconds=0.21)  # now the disk is slower, now the device


def test_a_batch_takes_a_whole_number_of_the_disks_ticks() -> None:
    """Each request is worth 0.1 to 0.25 s of the rate; docs/truth.md tells why."""
    for experiment in experiments():
        world = experiment.world
        if world.truth()["fetch"]:
            assert 0.1 < world.read_seconds / world.samples_per_batch < 0.25
            ticks = world.read_seconds / 0.004
            assert ticks == pytest.approx(round(ticks), abs=1e-6)


def test_every_experiment_has_a_name_and_a_truth_of_its_own() -> None:
    found = experiments()
    assert len({one.name for one in found}) == len(found)
    for kind in ("communication", "contention", "prep", "fetch"):
        amounts = [one.world.truth()[kind] for one in found if one.kind == kind]
        assert len(amounts) >= 6 and amounts == sorted(amounts)
    rates = [words.bits_per_second(one.link) for one in found if one.kind == "network"]
    assert len(rates) == len(AMOUNTS) and rates == sorted(rates, reverse=True)
    link = Link(bits_per_second=rates[2], depth_seconds=words.seconds(LINK_BURST))
    world = NETWORK_WORLD.between_hosts(link)
    assert world.truth()["network"] / world.iteration_seconds == pytest.approx(AMOUNTS[2])


def made_up(name: str, kind: str, true: float, error: float = 0.0) -> dict[str, Any]:
    """A result in which one stall is off by so much of an iteration of one second."""
    stalls = ("communication", "contention", "prep", "fetch")
    known = {stall: true if stall == kind else 0.0 for stall in stalls}
    measured = {
        stall: {
            "estimate": value + (error if stall == kind else 0.0),
            "low": value - 0.001,
            "high": value + 0.001,
            "significant": value != 0,
        }
        for stall, value in known.items()
    }
    return {
        "name": name,
        "group": "sweep",
        "kind": kind,
        "about": name,
        "truth_seconds": known,
        "measured": measured,
        "iteration_seconds": 1.0,
        "created": "2026-01-02T03:04:05Z",
        "machine": {"cpu": "some", "cores": 2, "system": "Linux", "torch": "2"},
        "seconds": 60.0,
    }


def test_a_fit_finds_slope_and_intercept_in_percent() -> None:
    amounts = (0.1, 0.2, 0.5, 1.0)
    exact = [made_up(f"prep-{a}", "prep", a, error=0.1 * a + 0.02) for a in amounts]
    fit = truth_numbers.fit_of(exact)
    assert fit.slope == pytest.approx(1.1)
    assert fit.intercept == pytest.approx(2.0)
    assert fit.r_squared == pytest.approx(1.0)
    assert not fit.met
    assert truth_numbers.fit_of(
        [made_up("p", "prep", a, 1e-4 * (-1) ** i) for i, a in enumerate(amounts)]
    ).met


def test_leakage_is_the_largest_error_of_another_stall_with_its_sign() -> None:
    small, large = made_up("prep-10", "prep", 0.1), made_up("prep-20", "prep", 0.2)
    small["measured"]["fetch"]["estimate"] = 0.01
    large["measured"]["fetch"]["estimate"] = -0.03
    found = truth_numbers.leakage([small, large])
    assert found["prep"]["fetch"] == pytest.approx(-3.0)
    assert found["prep"]["contention"] == 0


def test_the_pages_tell_what_misses_its_bar(tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="figures need altair: pip install '.[bench]'")
    results = tmp_path / "results"
    results.mkdir()
    for kind, bias in (("prep", 0.0), ("fetch", 0.05)):
        for number, amount in enumerate((0.1, 0.2, 0.5, 1.0)):
            error = bias + 1e-4 * (-1) ** number
            one = made_up(f"{kind}-{100 * amount:g}", kind, amount, error)
            (results / f"{one['name']}.json").write_text(json.dumps(one))
    intervals = [[1.0, 0.9, 1.1]] * 40 + [[1.2, 1.1, 1.3]] * 10
    launch = {"world": "delays", "bursts": True, "uneven": 0.02, "rounds": 20}
    launch["kinds"] = {"prep": {"truth": 1.0, "found": intervals}}
    launches = tmp_path / "coverage.jsonl"
    launches.write_text(2 * (json.dumps(launch) + "\n"))
    truth_report.write_pages(results, tmp_path, launches)
    page = (tmp_path / "truth.md").read_text()
    missed = page.partition("## What misses its bar")[2]
    assert "- `fetch`: slope or intercept" in missed and "- `prep`:" not in missed
    assert (
        "- coverage of `prep` under bursts of load, iterations that vary by +-2 %: 80 of 100"
        in missed
    )
    assert (tmp_path / "truth.svg").read_text().startswith("<svg")
    kept = json.loads((tmp_path / "truth.json").read_text())
    assert kept["fits"]["prep"]["met"] and not kept["fits"]["fetch"]["met"]
    assert len(kept["experiments"]) == 8

    again = tmp_path / "again"
    again.mkdir()
    (again / "one.json").write_text(json.dumps(made_up("fetch-100", "fetch", 1.0, 0.5)))
    truth_report.write_pages(again, tmp_path, tmp_path / "no launches")
    renewed = json.loads((tmp_path / "truth.json").read_text())
    assert renewed["coverage"] == kept["coverage"]  # what is not measured again stays
    found = {one["name"]: one["measured"] for one in renewed["experiments"]}
    assert len(found) == 8 and found["fetch-100"]["fetch"]["estimate"] == pytest.approx(1.5)


def test_an_experiment_that_has_its_result_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it was made by other sources."""
    known = Experiment(name="known", group="null", about="", world=World(), steps=ALL_STEPS)
    path = tmp_path / "known.json"
    path.write_text(json.dumps({"sources": truth.sources()}))
    truth.run_all([known], tmp_path, minutes=1)
    assert capsys.readouterr().out == ""

    made = made_up("known", "prep", 0.1) | {
        "rounds": 4,
        "seconds": 1,
        "stopped": "",
        "warnings": [],
    }
    monkeypatch.setattr(truth, "run", lambda experiment, minutes: (made, {}))
    path.write_text(json.dumps({"sources": "of another day"}))
    truth.run_all([known], tmp_path, minutes=1)
    assert json.loads(path.read_text()) == made
