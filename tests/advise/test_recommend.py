"""What to rent: the choice against brute force, dollars by hand, profiles that were measured."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import stash
from profiles import noisy, profile_of
from stash.advise import candidates
from stash.advise.recommend_evidence import gather
from stash.advise.recommend_job import _mean_hits
from stash.advise.recommend_words import hours, money
from stash.advise.recommendation import Assumptions, Candidate, Recommendation
from stash.cli.main import main
from stash.errors import StashError, UsageError
from stash.hardware import catalog
from stash.hardware.catalog import Instance
from stash.predict import facts
from stash.report.export import recommendations, tables
from stash.results.profile import Profile, Provenance
from stash.workloads import zoo

JOB: dict[str, Any] = {"samples": 1_281_167, "epochs": 10, "dtype": "amp"}
ARGUMENTS = ["--samples", "1281167", "--epochs", "10", "--dtype", "amp"]


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    catalog.forget()
    yield
    catalog.forget()


def find(workload: str = "resnet18", **options: Any) -> Recommendation:
    return stash.recommend(workload, **{**JOB, **options})


def own_catalog(folder: Path, *rows: dict[str, object]) -> str:
    """A file of machines, each with eight V100s unless it says otherwise."""
    usual = {"gpu": "v100", "gpus": 8, "vcpus": 64, "memory_gib": 488}
    complete = [{**usual, **row} for row in rows]
    columns = sorted({column for row in complete for column in row})
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(complete)
    path = folder / "own.csv"
    path.write_text(text.getvalue())
    return str(path)


def priced(usd: float) -> dict[str, object]:
    return {"price_usd_per_hour": usd, "price_region": "here", "price_date": "2026-11-16"}


def named(found: Recommendation, machine: str, nodes: int = 1) -> Candidate:
    (one,) = [c for c in found.candidates if c.machine == machine and c.nodes == nodes]
    return one


def usd(one: Candidate) -> float:
    assert one.usd is not None
    return one.usd.estimate


def test_the_cheapest_within_the_deadline_is_chosen() -> None:
    found = find(deadline_hours=2.0)
    in_time = [one for one in found.candidates if one.hours.estimate <= 2.0]
    assert found.choice == min(in_time, key=usd)
    assert found.question.objective == "cheapest"
    assert f"cheapest of {len(in_time)} ways" in found.words


def test_the_fastest_within_the_budget_is_chosen() -> None:
    found = find(budget_usd=20.0)
    paid = [one for one in found.candidates if usd(one) <= 20.0]
    assert found.choice == min(paid, key=lambda one: one.hours.estimate)


def test_the_knee_lies_farthest_from_the_line_between_the_ends_of_the_front() -> None:
    found = find()
    first, last = found.pareto[0], found.pareto[-1]

    def below(one: Candidate) -> float:
        along = (one.hours.estimate - first.hours.estimate) / (
            last.hours.estimate - first.hours.estimate
        )
        return usd(first) + along * (usd(last) - usd(first)) - usd(one)

    assert found.choice == max(found.pareto, key=below)


def test_where_all_take_equally_long_the_knee_is_the_cheapest() -> None:
    found = find(samples=10, epochs=1)
    assert found.chosen == 0
    assert "none is faster by a percent" in found.words
    dearer = [n for n in found.ties if usd(found.candidates[n]) > 1.02 * usd(found.candidates[0])]
    assert not dearer


def test_no_way_beats_one_on_the_front_in_both_time_and_cost() -> None:
    found = find()
    for one in found.pareto:
        assert not any(
            other.hours.estimate < one.hours.estimate and usd(other) <= usd(one)
            for other in found.candidates
        )
    behind = [c for n, c in enumerate(found.candidates) if n not in found.front]
    for one in behind:
        assert any(
            other.hours.estimate <= one.hours.estimate and usd(other) <= usd(one)
            for other in found.pareto
        )


def test_every_machine_stands_there_at_every_number_of_nodes() -> None:
    found = find(max_nodes=3)
    rows = [
        one
        for one in catalog.instances()
        if one.status == "available" and one.gpus and one.price_usd_per_hour is not None
    ]
    expected = {
        (one.cloud, one.name, nodes)
        for one in rows
        if one.accelerator is not None and one.accelerator.memory_bytes_per_second
        for nodes in ((1, 2, 3) if one.network_bytes_per_second else (1,))
    }
    assert {(one.cloud, one.machine, one.nodes) for one in found.candidates} == expected


@pytest.mark.parametrize(
    ("machine", "nodes"), [("p4d.24xlarge", 1), ("p4d.24xlarge", 4), ("g4dn.xlarge", 1)]
)
def test_times_are_those_of_the_predictor(machine: str, nodes: int) -> None:
    one = named(find("resnet50", batch_size=64), machine, nodes)
    alone = stash.predict(
        "resnet50", instance=machine, nnodes=nodes, batch_size=64, dtype="amp", samples=1_281_167
    )
    assert alone.epoch.later is not None
    seconds = alone.epoch.later.seconds
    assert one.later_epoch_seconds.estimate == pytest.approx(seconds.estimate)
    assert one.later_epoch_seconds.low == pytest.approx(seconds.low)
    assert one.later_epoch_seconds.high == pytest.approx(seconds.high)
    assert one.provenance is Provenance.PREDICTED


def test_hours_and_dollars_add_up() -> None:
    assumed = Assumptions(setup_seconds=120.0, profiling_seconds=300.0)
    one = named(find(assumptions=assumed), "p4d.24xlarge", 2)
    training = one.first_epoch_seconds.estimate + 9 * one.later_epoch_seconds.estimate
    assert one.hours.estimate == pytest.approx((120 + 300 + training) / 3600)
    assert one.price_usd_per_hour is not None
    assert usd(one) == pytest.approx(2 * one.price_usd_per_hour * one.hours.estimate)
    assert one.device_hours.estimate == pytest.approx(16 * one.hours.estimate)
    assert sum(one.parts.values()) == pytest.approx(1.0)
    assert one.parts["profiling"] == pytest.approx(300 / 3600 / one.hours.estimate)


def test_an_estimate_lies_in_its_interval() -> None:
    found = find("resnet50", data_bytes=500e9, samples_per_core=100.0)
    for one in found.candidates:
        for value in (one.hours, one.device_hours, one.usd, one.first_epoch_seconds):
            assert value is not None
            assert value.low is not None
            assert value.high is not None
            assert value.low <= value.estimate <= value.high


def with_a_slow_disk(folder: Path) -> str:
    rented = {"disk_mb_per_second": 500, "rdma": "efa", "rdma_gbit_per_second": 400, **priced(3.0)}
    return own_catalog(folder, {"name": "slow-disk", "gpu": "a100-sxm4-40gb", **rented})


def test_the_first_epoch_reads_from_storage_and_later_ones_from_memory(tmp_path: Path) -> None:
    table = with_a_slow_disk(tmp_path)
    fits = named(find(catalog=table, data_bytes=133e9), "slow-disk")
    assert fits.first_epoch_seconds.estimate == pytest.approx(133e9 / 500e6, rel=0.1)
    assert fits.later_epoch_seconds.estimate < 0.8 * fits.first_epoch_seconds.estimate
    assert fits.largest_stall == "fetch"
    overflows = named(find(catalog=table, data_bytes=2 * 0.8 * 488 * 2**30), "slow-disk")
    first, later = overflows.first_epoch_seconds, overflows.later_epoch_seconds
    # Half from a disk of 500 MB/s, half from memory, which is twenty times as fast.
    assert later.estimate == pytest.approx(first.estimate * (0.5 + 0.5 / 20), rel=0.05)
    assert later.high is not None
    # A cache that evicts what is needed next finds 1 - a + a ln(a) of it, a = 1/2.
    assert later.high == pytest.approx(first.estimate * (1 - 0.1534 * 0.95), rel=0.05)


def test_a_node_of_several_finds_little_of_its_share_in_memory(tmp_path: Path) -> None:
    table = with_a_slow_disk(tmp_path)
    found = find(catalog=table, data_bytes=400e9, epochs=2)
    alone, four = (named(found, "slow-disk", nodes) for nodes in (1, 4))
    # In the second epoch, a node of four has seen a quarter of what it is dealt.
    assert four.later_epoch_seconds.estimate == pytest.approx(
        (0.75 + 0.25 / 20) * four.first_epoch_seconds.estimate, rel=0.05
    )
    assert alone.later_epoch_seconds.estimate < 0.5 * alone.first_epoch_seconds.estimate


def test_too_few_cores_show_as_prep() -> None:
    one = named(find(samples_per_core=20.0), "p4d.24xlarge")
    assert one.largest_stall == "prep"
    assert one.later_epoch_seconds.estimate == pytest.approx(1_281_167 / (20.0 * 96), rel=0.1)


def test_spot_machines_are_interrupted_as_often_as_assumed() -> None:
    assumed = Assumptions(
        spot=True, interruptions_per_node_hour=0.1, lost_seconds_per_interruption=1200.0
    )
    found = find(assumptions=assumed)
    one = named(found, "p4d.24xlarge", 3)
    (row,) = [r for r in catalog.instances() if r.name == "p4d.24xlarge"]
    assert one.price_usd_per_hour == row.spot_usd_per_hour
    training = one.first_epoch_seconds.estimate + 9 * one.later_epoch_seconds.estimate
    busy = 3 * 0.1 * (1200 + 600) / 3600  # of every hour, making interruptions good
    whole = 1200 + training / (1 - busy)
    assert one.hours.estimate * 3600 == pytest.approx(whole)
    assert any("0.1 interruptions per node and hour" in remark for remark in found.remarks)


def test_machines_that_are_taken_away_faster_than_they_work_are_no_way() -> None:
    assumed = Assumptions(spot=True, interruptions_per_node_hour=1.0)
    found = find(assumptions=assumed, max_nodes=4)
    assert {one.nodes for one in found.candidates} == {1, 2}
    never = find(assumptions=Assumptions(spot=True, interruptions_per_node_hour=9.0))
    assert never.status == "infeasible"
    assert "interruptions cost more time than passes" in never.words


def gpu_profile(seconds: dict[str, float], **machine: Any) -> Profile:
    return profile_of(
        noisy(seconds, noise_seconds=1e-5),
        machine_changes={
            "devices": ("NVIDIA A100-SXM4-40GB",) * 8,
            "workers_per_node": 8,
            "instance": "p4d.24xlarge",
            **machine,
        },
        workload_changes={"dtype": "amp"},
        facts_changes={"preprocessing": None, "storage": None},
    )


def test_a_measured_machine_counts_as_measured_and_needs_no_profiling() -> None:
    measured = gpu_profile({"solo": 0.040, "node": 0.050})
    found = stash.recommend("resnet18", samples=1_281_167, epochs=10, from_profiles=[measured])
    one = named(found, "p4d.24xlarge")
    assert one.provenance is Provenance.MEASURED
    iterations = math.ceil(math.ceil(1_281_167 / 8) / 32)
    assert one.later_epoch_seconds.estimate == pytest.approx(iterations * 0.050, rel=1e-3)
    assert "profiling" not in one.parts
    assert found.question.dtype == "amp"
    (used,) = found.profiles
    assert "p4d.24xlarge" in used.words


def test_a_profile_that_names_its_machine_changes_the_answer(tmp_path: Path) -> None:
    table = own_catalog(
        tmp_path,
        {"name": "cheap", "gpu": "a100", **priced(30.0)},
        {"name": "dear", "gpu": "a100", **priced(40.0)},
    )
    steps = {"solo": 0.040, "node": 0.400}  # its links are ten times as slow as compute
    nameless, named_so = (gpu_profile(steps, instance=name) for name in (None, "cheap"))

    def answer(measured: Profile) -> Recommendation:
        return find(catalog=table, max_nodes=1, deadline_hours=500.0, from_profiles=[measured])

    blind, told = answer(nameless), answer(named_so)
    assert blind.choice is not None and blind.choice.machine == "cheap"
    assert blind.profiles[0].words.endswith("on a machine that is not in question")
    assert told.choice is not None and told.choice.machine == "dear"
    assert told.profiles[0].words == "measured on cheap, 1 node(s)"
    seconds = named(told, "cheap").later_epoch_seconds.estimate
    assert seconds == pytest.approx(math.ceil(math.ceil(1_281_167 / 8) / 32) * 0.4, rel=1e-3)


def test_a_machine_with_one_gpu_is_measured_by_its_node_step_alone() -> None:
    one_gpu = {"instance": "g5.xlarge", "workers_per_node": 1, "devices": ("NVIDIA A10G",)}
    found = find(from_profiles=[gpu_profile({"node": 0.060}, **one_gpu)], batch_size=32)
    one = named(found, "g5.xlarge")
    assert one.provenance is Provenance.MEASURED
    assert one.later_epoch_seconds.estimate == pytest.approx(
        math.ceil(1_281_167 / 32) * 0.060, rel=1e-3
    )


def test_nodes_of_one_gpu_tell_what_a_gpu_does_alone() -> None:
    two = {"instance": "g5.xlarge", "workers_per_node": 1, "nodes": 2}
    measured = gpu_profile({"node": 0.060, "scaleout": 0.090}, devices=("NVIDIA A10G",) * 2, **two)
    ways = candidates.grid([catalog.find("g5.xlarge")], 2)
    (seen,) = gather([measured], facts.find("resnet18"), ways, 32, "amp").observations
    assert seen.solo is not None
    assert seen.solo.seconds == pytest.approx(0.060, rel=1e-3)
    assert [(row, round(timing.seconds, 3)) for row, timing in seen.rows] == [(0, 0.06), (1, 0.09)]


def test_measured_data_count_at_their_own_batch_only() -> None:
    measured = gpu_profile({"solo": 0.04, "node": 0.05, "warm": 0.08, "cold": 0.2})
    same = named(find(from_profiles=[measured], batch_size=32), "p4d.24xlarge")
    iterations = math.ceil(math.ceil(1_281_167 / 8) / 32)
    assert same.first_epoch_seconds.estimate == pytest.approx(iterations * 0.2, rel=1e-3)
    assert same.later_epoch_seconds.estimate == pytest.approx(iterations * 0.08, rel=1e-3)
    other = named(find(from_profiles=[measured], batch_size=64), "p4d.24xlarge")
    assert other.provenance is Provenance.PREDICTED
    assert other.first_epoch_seconds.estimate == other.later_epoch_seconds.estimate


def test_a_profile_moves_and_narrows_what_shares_its_gpu_most() -> None:
    blind = find(batch_size=32)
    solo = stash.predict("resnet18", instance="p4d.24xlarge", dtype="amp", batch_size=32)
    slow = 1.5 * solo.steps["solo"].seconds_per_iteration.estimate
    found = find(from_profiles=[gpu_profile({"solo": slow, "node": 1.3 * slow})])

    def moved(machine: str) -> float:
        after, before = (named(one, machine).later_epoch_seconds for one in (found, blind))
        return after.estimate / before.estimate

    def width(of: Recommendation, machine: str) -> float:
        value = named(of, machine).later_epoch_seconds
        assert value.high is not None
        assert value.low is not None
        return value.high / value.low

    same, other = "gpu_1x_a100_sxm4", "gpu_1x_h100_sxm5"
    assert moved(same) == pytest.approx(1.5, rel=0.02)
    assert 1.2 < moved(other) < moved(same)
    assert width(found, same) < width(found, other) < width(blind, other)


def test_a_profile_of_no_gpu_brings_only_its_rates() -> None:
    cpu = profile_of(machine_changes={"device": "cpu", "devices": ("cpu",) * 2})
    found = find(from_profiles=[cpu], batch_size=32)
    assert found.profiles[0].words.startswith("rates of its data only")
    assert named(found, "p4d.24xlarge").provenance is Provenance.PREDICTED
    assert named(found, "p4d.24xlarge").parts["prep"] > 0
    assert not any("Data are not counted" in remark for remark in found.remarks)
    assert any("specifications alone" in remark for remark in found.remarks)


def test_a_profile_of_a_gpu_that_times_nothing_usable_says_so() -> None:
    measured = gpu_profile({"node": 0.05}, instance=None)
    (used,) = find(from_profiles=[measured]).profiles
    assert used.words.startswith("nothing: it times no A100 SXM4 40GB alone (step solo)")


def test_no_two_models_of_the_zoo_have_as_many_parameters() -> None:
    """So their number tells a profile of another model."""
    counts = [facts.find(name).parameters for name in zoo.names()]
    assert len(set(counts)) == len(counts)


def test_machines_whose_disks_nobody_has_told_are_counted_and_named(tmp_path: Path) -> None:
    table = own_catalog(tmp_path, {"name": "diskless", **priced(3.0)})
    found = find(catalog=table, data_bytes=133e9)
    assert any(remark.startswith("Of 1 machine types") for remark in found.remarks)
    assert "fetch" not in named(found, "diskless").parts


def test_equal_machines_are_tied_and_dearer_ones_of_a_kind_are_not(tmp_path: Path) -> None:
    table = own_catalog(
        tmp_path,
        {"name": "one", **priced(10.0)},
        {"name": "two", **priced(10.0)},
        {"name": "dear", **priced(100.0)},
    )
    found = find(catalog=table, deadline_hours=100.0, max_nodes=1)
    assert found.choice is not None
    assert {found.candidates[n].machine for n in found.ties} == {"one", "two"} - {
        found.choice.machine
    }


def test_machines_without_a_price_are_counted_in_device_hours(tmp_path: Path) -> None:
    table = own_catalog(tmp_path, {"name": "ours"}, {"name": "small", "gpus": 2})
    found = find(catalog=table, deadline_hours=100.0)
    assert found.question.currency == "device-hours"
    assert all(one.usd is None for one in found.candidates)
    assert found.choice == min(found.candidates, key=lambda one: one.device_hours.estimate)
    with pytest.raises(UsageError, match="budget in dollars needs prices"):
        find(catalog=table, budget_usd=5.0)


def test_beside_priced_machines_those_without_a_price_are_left_out_by_name(tmp_path: Path) -> None:
    table = own_catalog(tmp_path, {"name": "ours"}, {"name": "rented", **priced(3.0)})
    found = find(catalog=table)
    assert {one.machine for one in found.candidates} == {"rented"}
    assert any("no price" in out.reason and out.machines == ("ours",) for out in found.left_out)


def test_retired_machines_stay_out_unless_asked_for() -> None:
    names = {one.machine for one in find().candidates}
    with_retired = {one.machine for one in find(retired=True).candidates}
    assert "p3.2xlarge" not in names
    assert with_retired - names >= {"p3.2xlarge", "p3.16xlarge"}


def test_clouds_and_patterns_choose_machines() -> None:
    found = find(clouds=("aws", "gcp"), exclude=("p4*", "a2-*"))
    assert {one.cloud for one in found.candidates} == {"aws", "gcp"}
    assert not any(one.machine.startswith(("p4", "a2-")) for one in found.candidates)


def test_prices_carry_their_date_and_region() -> None:
    found = find(clouds=("aws",))
    assert "aws 2026-08" in found.remarks[0]
    assert "us-east-1" in found.remarks[0]
    assert all(one.price_date and one.price_region for one in found.candidates)


def test_what_is_infeasible_says_what_would_have_to_change() -> None:
    late = find("resnet50", deadline_hours=0.3, epochs=90)
    assert late.status == "infeasible"
    assert late.choice is None
    assert "no way finishes within 18 min" in late.words
    assert "It would take a deadline of" in late.words
    dear = find("resnet50", budget_usd=1.0, epochs=90)
    assert "a budget of $" in dear.words
    both = find("resnet50", budget_usd=usd(dear.pareto[0]) * 1.01, deadline_hours=2.0, epochs=90)
    assert "keeps both the deadline" in both.words


def test_what_is_asked_for_is_enough() -> None:
    late = find("resnet50", deadline_hours=0.3, epochs=90)
    deadline = re.search(r"a deadline of ([\d.]+) (min|h) or more", late.words)
    assert deadline is not None
    enough = float(deadline[1]) / (60 if deadline[2] == "min" else 1)
    assert find("resnet50", deadline_hours=enough, epochs=90).status == "chosen"
    dear = find("resnet50", budget_usd=1.0, epochs=90)
    budget = re.search(r"a budget of \$([\d.,]+) or more", dear.words)
    assert budget is not None
    paid = float(budget[1].replace(",", ""))
    assert find("resnet50", budget_usd=paid, epochs=90).status == "chosen"


@pytest.mark.parametrize(
    ("value", "nearest", "up"),
    [
        (0.3052, "18.3 min", "18.4 min"),  # 18.312
        (2.0, "2 h", "2 h"),
        (2.001, "2 h", "2.01 h"),
        (99.96, "100 h", "100 h"),
        (240.1, "10 days", "10.1 days"),  # 10.004
    ],
)
def test_hours_are_rounded_up_where_they_must_be_enough(
    value: float, nearest: str, up: str
) -> None:
    assert (hours(value), hours(value, up=True)) == (nearest, up)


@pytest.mark.parametrize(
    ("value", "nearest", "up"),
    [
        (12.341, "$12.34", "$12.35"),
        (12.5, "$12.50", "$12.50"),
        (1234.2, "$1,234", "$1,235"),
        (99.999, "$100.00", "$100.00"),
    ],
)
def test_dollars_are_rounded_up_where_they_must_be_enough(
    value: float, nearest: str, up: str
) -> None:
    question = find(clouds=("aws",)).question
    assert (money(value, question), money(value, question, up=True)) == (nearest, up)


def test_a_model_that_fits_nowhere_is_told_so_under_a_budget(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = find("bert-large", batch_size=100_000, budget_usd=100.0)
    assert "--batch-size" in found.words and found.status == "infeasible"
    arguments = ["--batch-size", "100000", "--budget", "100"]
    assert main(["recommend", "bert-large", *ARGUMENTS, *arguments]) == 1
    assert "Infeasible" in capsys.readouterr().out


def test_a_model_that_fits_nowhere_is_told_the_batch_that_would() -> None:
    found = find("bert-large", batch_size=100_000)
    assert found.status == "infeasible"
    assert "--batch-size" in found.words
    assert found.candidates == ()


def test_a_limit_that_is_nearly_kept_for_much_less_is_mentioned(tmp_path: Path) -> None:
    table = own_catalog(
        tmp_path,
        {"name": "slow", "gpus": 7, **priced(1.0)},
        {"name": "quick", **priced(50.0)},
    )
    either = find(catalog=table, max_nodes=1, deadline_hours=100.0)
    slow, quick = (named(either, name).hours.estimate for name in ("slow", "quick"))
    assert quick < slow < 1.2 * quick
    found = find(catalog=table, max_nodes=1, deadline_hours=(slow + quick) / 2)
    assert found.choice is not None
    assert found.choice.machine == "quick"
    assert any("slow would do for" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"samples": 0}, "--samples is 0; expected 1 or more."),
        ({"epochs": -1}, "--epochs is -1; expected 1 or more."),
        ({"budget_usd": -5.0}, "--budget is -5; expected more than zero dollars."),
        ({"deadline_hours": 0.1}, "The deadline of 6 min is over before training begins"),
        ({"deadline_hours": -1.0}, "--deadline is -1 h"),
        ({"clouds": ("moon",)}, "The catalog has no cloud moon"),
        ({"exclude": ("p99*",)}, "--exclude p99\\* names no machine"),
        ({"exclude": ("*",)}, "No machine is left to choose from"),
        ({"max_nodes": 0}, "--max-nodes is 0"),
        ({"max_nodes": 129}, "--max-nodes is 129; expected 1 to 128."),
        ({"samples": 10**16}, "--samples is 10000000000000000; input should be less than"),
        ({"epochs": 10**16}, "--epochs is 10000000000000000; input should be less than"),
        ({"batch_size": 10**16}, "--batch-size is 10000000000000000; input should be less than"),
        ({"budget_usd": 1e19}, r"--budget is 1e\+19; input should be less than"),
        ({"deadline_hours": 1e19}, r"--deadline in hours is 1e\+19; input should be less than"),
        ({"data_bytes": 1e19}, r"--data-size in bytes is 1e\+19; input should be less than"),
        ({"epochs": 10**13}, "On the fastest machine this job would train for .* hours"),
        ({"samples_per_core": 1e-300}, "longer than any machine is rented. Check --samples"),
        ({"data_bytes": -1.0}, "--data-size is -1"),
        ({"dtype": "int4"}, "Unknown precision 'int4'"),
        ({"catalog": "1999"}, "no snapshot '1999'"),
        ({"from_profiles": [profile_of()], "workload": "resnet50"}, "is of resnet18 with"),
    ],
)
def test_silly_input_gets_one_clear_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as raised:
        find(**options)
    assert "\n" not in raised.value.message


def test_a_document_survives_its_own_reading(tmp_path: Path) -> None:
    found = find(next_probe=True, clouds=("aws",))
    path = tmp_path / "recommendation.json"
    path.write_text(found.to_json())
    assert Recommendation.load(path) == found
    path.write_text(found.to_json().replace("stash.recommendation/1", "stash.recommendation/9"))
    with pytest.raises(StashError, match="schema"):
        Recommendation.load(path)
    path.write_text("{")
    with pytest.raises(StashError, match="not a complete JSON document"):
        Recommendation.load(path)


def test_the_command_says_what_to_rent_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "answer.json"
    arguments = ["recommend", "resnet18", *ARGUMENTS, "--deadline", "2h", "--next-probe"]
    assert main([*arguments, "--out", str(out)]) == 0
    page = capsys.readouterr().out
    found = Recommendation.load(out)
    assert found.choice is not None
    assert f"Rent {found.choice.name} (" in page
    assert "Measure " in page
    assert max(len(line) for line in page.splitlines() if "Written to" not in line) <= 80
    assert main([*arguments, "--out", str(out)]) == 1
    assert "without --force" in capsys.readouterr().err


def test_the_command_prints_its_document_and_writes_tables(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table, times, task = (tmp_path / name for name in ("all.csv", "times.csv", "task.yaml"))
    arguments = ["--csv", str(table), "--sky-times", str(times), "--sky", str(task), "--json"]
    chosen = ["--clouds", "gcp", "--budget", "30"]
    assert main(["recommend", "resnet18", *ARGUMENTS, *chosen, *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == len(document["candidates"])
    (best,) = [row for row in rows if row["chosen"] == "true"]
    choice = document["candidates"][document["chosen"]]
    assert float(best["usd"]) == choice["usd"]["estimate"]
    seconds = list(csv.DictReader(times.read_text().splitlines()))
    assert float(seconds[0]["seconds"]) == pytest.approx(3600 * float(rows[0]["hours"]), abs=0.1)
    rented = yaml.safe_load(task.read_text())
    assert rented["num_nodes"] == choice["nodes"]
    assert rented["resources"]["infra"] == "gcp"
    assert rented["resources"]["instance_type"] == choice["machine"].split("+")[0]
    assert rented["run"].startswith("torchrun --nnodes")


def test_the_documented_estimator_tells_gpus_of_one_machine_type_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = find(clouds=("gcp", "aws"))
    Path("times.csv").write_text(tables.as_csv(recommendations.sky_time_rows(found)))
    page = (Path(__file__).parents[2] / "docs" / "recommend.md").read_text()
    (block,) = [one for one in page.split("```") if "set_time_estimator" in one]
    estimators: list[Callable[[object], float]] = []
    task = SimpleNamespace(num_nodes=1, set_time_estimator=estimators.append)
    exec(block, {"csv": csv, "task": task})
    for machine, bare, accelerators in (
        ("n1-standard-8+1xT4", "n1-standard-8", {"T4": 1}),
        ("n1-standard-8+1xV100", "n1-standard-8", {"V100": 1.0}),
        ("p4d.24xlarge", "p4d.24xlarge", {"A100": 8}),
    ):
        asked = SimpleNamespace(instance_type=bare, accelerators=accelerators)
        wanted = 3600 * named(found, machine).hours.estimate
        assert estimators[0](asked) == pytest.approx(wanted, abs=0.1), machine


def test_an_infeasible_job_ends_the_command_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "resnet18", *ARGUMENTS, "--budget", "0.01"]) == 1
    assert "Infeasible" in capsys.readouterr().out
    assert main(["recommend", "resnet18", *ARGUMENTS, "--deadline", "soon"]) == 2


def test_an_infeasible_job_is_told_before_files_are_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, task = tmp_path / "answer.json", tmp_path / "task.yaml"
    arguments = ["--budget", "0.01", "--sky", str(task), "--out", str(out)]
    assert main(["recommend", "resnet18", *ARGUMENTS, *arguments]) == 1
    told = capsys.readouterr()
    assert "Infeasible: no way costs at most $0.01" in told.out
    assert told.err == "stash: Nothing was chosen, so there is no SkyPilot task to write.\n"
    assert Recommendation.load(out).status == "infeasible" and not task.exists()


def test_a_file_that_cannot_be_written_takes_neither_the_answer_nor_another_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, table, task = (tmp_path / name for name in ("answer.json", "all.csv", "task.yaml"))
    out.write_text("mine")
    machines = own_catalog(tmp_path, {"name": "ours", **priced(3.0)})
    arguments = ["--catalog", machines, "--out", str(out), "--csv", str(table), "--sky", str(task)]
    assert main(["recommend", "resnet18", *ARGUMENTS, *arguments]) == 2
    told = capsys.readouterr()
    assert "Rent ours" in told.out
    assert f"Will not overwrite {out} without --force." in told.err
    assert "SkyPilot rents from" in told.err and not task.exists()
    assert out.read_text() == "mine" and table.exists()
    assert main(["recommend", "resnet18", *ARGUMENTS, *arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["status"] == "chosen"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--interruptions", "-1"], "--interruptions is -1.0; input should be greater than or"),
        (["--setup", "99999d"], "--setup in seconds is 8639913600.0; input should be less than"),
        (["--lost", "99999d"], "--lost in seconds is 8639913600.0; input should be less than"),
        (["--clouds", "aws, moon"], "The catalog has no cloud moon"),
    ],
)
def test_a_silly_option_gets_one_clear_sentence(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recommend", "resnet18", *ARGUMENTS, *options]) == 2
    told = capsys.readouterr().err
    assert sentence in told and "bug" not in told


def test_clouds_may_be_written_with_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--clouds", " aws, gcp ,", "--json"]
    assert main(["recommend", "resnet18", *ARGUMENTS, *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["question"]["clouds"] == ["aws", "gcp"]


@pytest.mark.parametrize(("nodes", "epochs"), [(1, 1), (1, 9), (4, 1), (4, 2), (4, 90), (128, 7)])
def test_what_nodes_find_again_is_the_mean_of_all_later_epochs(nodes: int, epochs: int) -> None:
    later = range(1, max(2, epochs))
    mean = sum(1 - (1 - 1 / nodes) ** k for k in later) / len(later)
    assert _mean_hits(nodes, epochs) == pytest.approx(mean)
    assert _mean_hits(nodes, 10**15) == pytest.approx(1)


def test_words_of_a_task_stay_in_its_comment() -> None:
    from stash.advise.recommend_sky import sky_task

    found = find(clouds=("aws",))
    plain = yaml.safe_load(sky_task(found))
    hostile = found.model_copy(update={"words": "rent this\nrun: |\n  rm -r /\x85run: false"})
    assert yaml.safe_load(sky_task(hostile)) == plain


def test_google_attaches_some_gpus_to_a_machine() -> None:
    from stash.advise.recommend_sky import sky_task

    found = find(clouds=("gcp",))
    position = next(n for n, one in enumerate(found.candidates) if "+" in one.machine)
    task = yaml.safe_load(sky_task(found.model_copy(update={"chosen": position})))
    machine, attached = found.candidates[position].machine.split("+")
    count, gpu = attached.split("x")
    assert task["resources"] == {
        "infra": "gcp",
        "instance_type": machine,
        "accelerators": f"{gpu}:{count}",
    }


@pytest.mark.parametrize("limit", [{"deadline_hours": 2.0}, {"budget_usd": 20.0}, {}])
def test_the_next_probe_says_what_it_costs_and_what_it_is_expected_to_save(
    limit: dict[str, float],
) -> None:
    found = find("resnet50", next_probe=True, **limit)
    probe = found.next_probe
    assert probe is not None
    one = named(found, probe.machine, probe.nodes)
    assert one.price_usd_per_hour is not None
    assert probe.probe_usd == pytest.approx(one.price_usd_per_hour * probe.nodes / 3)
    assert (probe.expected_saving_usd is not None) == ("deadline_hours" in limit)
    assert (probe.expected_saving_hours is not None) == ("budget_usd" in limit)
    assert probe.words.startswith(f"Measure {one.name} next (20 min, ${probe.probe_usd:.2f})")


def test_a_model_of_the_zoo_needs_no_torch() -> None:
    code = (
        "import sys, stash; stash.recommend('resnet18', samples=1000, epochs=1); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_machines_of_the_grid_keep_their_order_and_network() -> None:
    rows = [one for one in catalog.instances() if one.name in ("p4d.24xlarge", "g4dn.xlarge")]
    silent: Instance = replace(
        rows[0],
        name="silent",
        network_gbit_per_second=None,
        network_burst_gbit_per_second=None,
        rdma="",
    )
    ways = candidates.grid([*rows, silent], 3)
    assert [ways.of(row).name for row in range(len(ways))] == [
        *[rows[0].name] * 3,
        *[rows[1].name] * 3,
        "silent",
    ]
    assert list(ways.nodes) == [1, 2, 3, 1, 2, 3, 1]
    assert list(ways.one_node) == [0, 0, 0, 3, 3, 3, 6]
