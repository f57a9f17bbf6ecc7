"""From recorded probes to the links document, on numbers that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from links import BYTES_PER_SECOND, LATENCY, SIZES, events, exchange, links_of, moves
from profiles import machine, profile_of
from stash.errors import StashError
from stash.results import store
from stash.results.links import Links
from stash.results.profile import Profile
from stash.results.recording import LinkFacts, LinkRound


def test_the_slowest_workers_time_is_the_time_and_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """Four workers: 2 (4 - 1) / 4 = 1.5 times the size over the time."""
    (node,) = links_of().all_reduce
    assert (node.where, node.nodes, node.workers) == ("node", 1, 4)
    for size, message in zip(SIZES, node.messages, strict=True):
        seconds = LATENCY + size / BYTES_PER_SECOND
        assert message.bytes == size
        assert message.seconds.estimate == pytest.approx(seconds)
        assert message.bytes_per_second.estimate == pytest.approx(size / seconds)
        assert message.bus_bytes_per_second.estimate == pytest.approx(1.5 * size / seconds)


def test_the_line_finds_latency_and_bandwidth() -> None:
    (node,) = links_of().all_reduce
    assert node.line is not None
    assert node.line.latency_seconds.estimate == pytest.approx(LATENCY)
    assert node.line.bytes_per_second.estimate == pytest.approx(BYTES_PER_SECOND)
    assert node.line.bus_bytes_per_second.estimate == pytest.approx(1.5 * BYTES_PER_SECOND)
    assert node.line.worst_misfit_percent == pytest.approx(0, abs=1e-6)


def test_intervals_of_the_line_hold_the_truth_as_often_as_they_say() -> None:
    """Noise of 5 % that all sizes of a round share in part, as drift of a machine does."""
    held, runs = np.zeros(2), 200
    for seed in range(runs):
        random = np.random.default_rng(seed)
        drift, own = random.normal(1, 0.03, 20), random.normal(1, 0.04, (20, len(SIZES)))

        def noisy(size: int, number: int, drift=drift, own=own) -> float:  # type: ignore[no-untyped-def]
            factor = drift[number] * own[number, SIZES.index(size)]
            return float((LATENCY + size / BYTES_PER_SECOND) * factor)

        (node,) = links_of(events(noisy, rounds=20)).all_reduce
        assert node.line is not None
        for index, (found, truth) in enumerate(
            ((node.line.latency_seconds, LATENCY), (node.line.bytes_per_second, BYTES_PER_SECOND))
        ):
            assert found.low is not None and found.high is not None
            held[index] += found.low <= truth <= found.high
    assert (held / runs >= 0.90).all() and (held / runs <= 0.99).all()


def test_times_that_do_not_grow_with_the_size_make_no_line() -> None:
    found = links_of(events(lambda size, number: 0.002 - size * 1e-12))
    assert found.all_reduce[0].line is None
    assert any(check.name == "line (node)" and check.status == "warn" for check in found.checks)


def test_noise_alone_makes_no_line() -> None:
    """Times of 2 ms whatever the size, with 5 % of noise: one in forty seems to grow by chance."""
    drawn, runs = 0, 100
    for seed in range(runs):
        random = np.random.default_rng(seed)
        found = links_of(events(lambda size, number, r=random: 0.002 * r.normal(1, 0.05)))
        drawn += found.all_reduce[0].line is not None
    assert drawn / runs <= 0.08


def why_no_line(found: Links) -> str:
    """What the check says where there is none."""
    assert found.all_reduce[0].line is None
    (check,) = [check for check in found.checks if check.name == "line (node)"]
    assert check.status == "warn" and check.next
    return check.message


def test_why_there_is_no_line_is_said_in_words_of_its_own() -> None:
    assert "3 sizes or more, and 2 were probed" in why_no_line(links_of(events(sizes=SIZES[:2])))
    assert "One round does not tell" in why_no_line(links_of(events(rounds=1)))
    flat = links_of(events(lambda size, number: 0.002))
    assert "do not grow with the size" in why_no_line(flat)


def test_a_line_that_is_far_off_is_said() -> None:
    bent = links_of(events(lambda size, number: 0.002 if size < 1e6 else 0.1))
    (check,) = [check for check in bent.checks if check.name == "line (node)"]
    assert check.status == "warn" and "off by" in check.message


def test_one_round_gives_numbers_without_intervals() -> None:
    (node,) = links_of(events(rounds=1)).all_reduce
    assert node.messages[0].seconds.low is None
    assert node.messages[0].bus_bytes_per_second.high is None


def test_bandwidth_has_no_interval_where_that_of_its_time_reaches_zero() -> None:
    wild = links_of(events(lambda size, number: 1e-6 if number else 1.0, rounds=2))
    message = wild.all_reduce[0].messages[0]
    assert message.seconds.low is not None and message.seconds.low < 0
    assert message.bytes_per_second.low is None


def test_devices_at_once_share_by_the_mean_over_them() -> None:
    more = (moves("memory", [4e9], 4), moves("memory", [1e9, 3e9], 4))
    (memory,) = links_of(events(more=more)).shared
    assert [one.at_once for one in memory.counts] == [1, 2]
    assert memory.counts[0].bytes_per_second_each.estimate == pytest.approx(4e9)
    assert memory.counts[1].bytes_per_second_each.estimate == pytest.approx(2e9)
    assert memory.counts[1].samples_bytes_per_second[0] == pytest.approx((1e9, 3e9))


@pytest.mark.parametrize(("read", "status"), [(1_000_000, "pass"), (100_000, "warn")])
def test_reads_are_cold_only_where_storage_delivered_the_bytes(read: int, status: str) -> None:
    more = (moves("storage", [1e8], 4, storage_bytes=read, file_bytes=1_000_000),)
    (cold,) = [check for check in links_of(events(more=more)).checks if check.name == "cold"]
    assert cold.status == status


def test_sets_of_workers_on_several_nodes_are_told_apart() -> None:
    told = events()
    first = told[1]
    assert isinstance(first, LinkRound)
    blocks = tuple(
        exchange(what, size, 0.01, count, 4)
        for what, count in (("node", 2), ("between", 2), ("cluster", 4))
        for size in SIZES
    )
    facts = LinkFacts(machine=machine(nodes=2, workers_per_node=2), checks=())
    found = links_of([facts, first.model_copy(update={"blocks": blocks})])
    assert [(one.where, one.nodes, one.workers) for one in found.all_reduce] == [
        ("node", 1, 2),
        ("between", 2, 2),
        ("cluster", 2, 4),
    ]


def test_a_probe_that_failed_keeps_its_rounds_and_says_why() -> None:
    found = links_of(events()[:4], failure="Worker 1 failed: out of memory.")
    assert found.run.rounds == 3 and found.run.stopped_because == "failed"
    assert "out of memory" in found.run.message
    with pytest.raises(StashError, match=r"out of memory(.|\n)*nothing was saved"):
        links_of(events()[:1], failure="Worker 1 failed: out of memory.")


def test_links_lie_beside_profiles_and_are_not_taken_for_one(tmp_path: Path) -> None:
    profile = store.save(profile_of(), tmp_path)
    links = store.save(links_of(), tmp_path)
    assert links.name == "20250304_050607-links-4xcpu-abcd1234.links.json"
    assert [path for path, _ in store.entries(tmp_path)] == [profile]
    assert store.find("last", tmp_path) == profile
    assert store.find("abcd", tmp_path) == links
    assert Links.load(links) == links_of()


def test_a_profile_carries_links_and_reads_back_the_same() -> None:
    profile = profile_of().model_copy(update={"links": links_of()})
    assert Profile.from_json(profile.to_json()) == profile


@pytest.mark.parametrize("change", ['"schema": "stash.links/2"', '"rounds": -1', '"rounds": NaN'])
def test_a_damaged_links_document_is_refused_with_a_reason(change: str, tmp_path: Path) -> None:
    text = links_of().to_json()
    key = change.partition(":")[0]
    old = next(line.strip().rstrip(",") for line in text.splitlines() if key in line)
    path = tmp_path / "x.links.json"
    path.write_text(text.replace(old, change, 1))
    with pytest.raises(StashError, match=r"schema|rounds|not a number"):
        Links.load(path)
