"""`stash.predict`: one document for CLI, JSON and Python, predicted and plainly so."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import stash
from profiles import noisy, profile_of
from stash.cli.main import main
from stash.errors import UsageError
from stash.predict.api import data_rates
from stash.predict.uncertainty import BANDS, band, stall_bounds
from stash.report.terminal import print_profile
from stash.results.profile import Profile, Provenance

BLIND_SOLO = BANDS["blind", "solo"]


def text_of(profile: Profile) -> str:
    console = Console(file=io.StringIO(), width=100)
    print_profile(profile, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_prediction_says_what_it_is_and_what_it_rests_on() -> None:
    found = stash.predict("resnet50", instance="p4d.24xlarge", dtype="amp", samples=1_281_167)
    assert found.provenance is Provenance.PREDICTED
    assert set(found.steps) == {"solo", "node"}
    assert all(step.rounds == 0 and step.blocks == () for step in found.steps.values())
    page = text_of(found)
    assert page.startswith("PREDICTED by a model")
    assert "calibrated on specifications" in page
    assert "measured:" not in page
    assert "Intervals are 90 %" in page
    assert found.epoch.later is not None
    assert found.epoch.later.usd is not None


def test_a_document_survives_its_own_reading() -> None:
    found = stash.predict("vgg16", instance="p3.8xlarge", nnodes=2)
    assert Profile.from_json(found.to_json()) == found


def test_several_nodes_have_their_own_steps_and_stalls() -> None:
    found = stash.predict("vgg16", instance="p3.8xlarge", nnodes=2)
    assert set(found.steps) == {"solo", "node", "cluster", "scaleout"}
    assert {"interconnect", "network", "scale-out"} <= set(found.stalls)
    scale_out = found.stalls["scale-out"].share
    interconnect = found.stalls["interconnect"].share
    assert scale_out is not None
    assert interconnect is not None
    assert found.waiting.later is not None
    assert found.waiting.later.estimate == pytest.approx(scale_out.estimate + interconnect.estimate)


def test_an_estimate_lies_in_its_interval() -> None:
    found = stash.predict("bert-base", instance="g4dn.12xlarge", nnodes=4, batch_size=8)
    values = [step.seconds_per_iteration for step in found.steps.values()]
    values += [stall.seconds_per_iteration for stall in found.stalls.values()]
    for value in values:
        assert value.low is not None
        assert value.high is not None
        assert value.low < value.estimate < value.high


def test_slices_of_a_machine_are_all_there_with_their_chances() -> None:
    found = stash.predict("resnet50", instance="p3.8xlarge")
    assert found.prediction is not None
    slices = found.prediction.slices
    assert [round(70 * one.chance) for one in slices] == [62, 6, 2]
    times = [one.seconds_per_iteration for one in slices]
    assert times == sorted(times, reverse=True)
    solo = found.steps["solo"].seconds_per_iteration.estimate
    assert [one.interconnect_percent for one in slices] == pytest.approx(
        [100 * (seconds / solo - 1) for seconds in times]
    )
    assert "interconnect stall" in text_of(found)


def test_the_stall_of_a_slice_is_that_inside_a_node_however_many_there_are() -> None:
    one = stash.predict("resnet50", instance="p3.8xlarge").prediction
    two = stash.predict("resnet50", instance="p3.8xlarge", nnodes=2)
    assert one is not None and two.prediction is not None
    pairs = list(zip(one.slices, two.prediction.slices, strict=True))
    assert all(a.interconnect_percent == b.interconnect_percent for a, b in pairs)
    assert all(a.seconds_per_iteration < b.seconds_per_iteration for a, b in pairs)
    assert " ms on all nodes, interconnect stall " in " ".join(text_of(two).split())


def test_workers_that_cannot_be_spread_evenly_are_spread_as_evenly_as_can_be() -> None:
    found = {n: stash.predict("vgg16", instance="p3.8xlarge", nnodes=n) for n in (2, 3, 4, 8)}
    cluster = {nodes: seconds(one, "cluster") for nodes, one in found.items()}
    # The network decides, whether two nodes or three share four workers.
    assert cluster[3] == pytest.approx(cluster[2], rel=0.01)
    assert cluster[3] > seconds(found[3], "node")
    assert cluster[8] == cluster[4]  # four workers are on four nodes at most


def test_data_rates_bring_prep_and_fetch() -> None:
    found = stash.predict(
        "alexnet",
        instance="p3.16xlarge",
        dtype="amp",
        samples=1_281_167,
        samples_per_core=100.0,
        sample_bytes=110_000,
    )
    assert found.stalls["prep"].seconds_per_iteration.estimate > 0
    assert found.stalls["prep"].seconds_per_iteration.low is None  # no interval is invented
    assert found.epoch.first is not None


def test_data_that_do_not_fit_into_memory_have_bounds() -> None:
    found = stash.predict(
        "alexnet",
        instance="p3.2xlarge",
        dtype="amp",
        batch_size=256,
        samples=1_281_167,
        samples_per_core=1000.0,
        sample_bytes=110_000,
    )
    (check,) = [one for one in found.checks if one.name == "page cache"]
    assert check.status == "warn"
    assert "evicts" in check.message
    assert seconds(found, "warm") < seconds(found, "cold")


def test_storage_is_no_part_of_prep_where_the_data_do_not_fit_into_memory() -> None:
    data = {"samples_per_core": 1000.0, "sample_bytes": 110_000.0}
    place = {"instance": "p3.2xlarge", "dtype": "amp", "batch_size": 256}
    small = stash.predict("alexnet", **place, **data, samples=100_000)
    large = stash.predict("alexnet", **place, **data, samples=1_281_167)
    assert large.stalls["prep"] == small.stalls["prep"]
    assert large.stalls["fetch"] == small.stalls["fetch"]
    assert small.iteration is None
    assert large.iteration is not None and large.iteration.later is not None
    later = large.iteration.later.estimate
    assert seconds(large, "warm") < later < seconds(large, "cold")
    assert large.epoch.later is not None
    assert large.epoch.later.seconds.estimate == pytest.approx(later * large.epoch.later.iterations)


def test_what_cannot_be_predicted_says_why() -> None:
    with pytest.raises(UsageError, match=r"does not fit: .* --batch-size \d+ would fit"):
        stash.predict("resnet50", instance="p2.xlarge", batch_size=1024)
    with pytest.raises(UsageError, match=r"p3\.16xlarge"):
        stash.predict("resnet50", instance="p3.61xlarge")
    with pytest.raises(UsageError, match="Unknown precision"):
        stash.predict("resnet50", instance="p3.16xlarge", dtype="int4")
    with pytest.raises(UsageError, match="no network"):
        stash.predict("resnet50", instance="gpu_8x_v100", nnodes=2)
    with pytest.raises(UsageError, match="nnodes"):
        stash.predict("resnet50", instance="p3.16xlarge", nnodes=0)


def sample() -> Profile:
    from stash.cli.show import load_sample

    return load_sample()


def test_a_measured_profile_of_another_model_is_refused() -> None:
    with pytest.raises(UsageError, match="tinycnn"):
        stash.predict("resnet50", instance="p3.16xlarge", from_profile=sample())


def test_rates_of_a_cpu_profile_are_used_but_not_its_compute() -> None:
    found = stash.predict("tinycnn", instance="p3.16xlarge", from_profile=sample())
    assert found.prediction is not None
    assert "compute is from specifications" in found.prediction.calibrated_on
    assert {"prep", "fetch"} <= set(found.stalls)


def on_a_gpu(measured: Profile, name: str, seconds: float) -> Profile:
    """The sample, as if it had been measured on a GPU."""
    document = json.loads(measured.to_json())
    document["machine"]["device"] = "cuda"
    document["machine"]["devices"] = [name] * 2
    document["steps"]["solo"]["seconds_per_iteration"]["estimate"] = seconds
    return Profile.from_json(json.dumps(document))


def test_a_profile_on_the_same_gpu_sets_the_time_of_one_worker() -> None:
    measured = on_a_gpu(sample(), "Tesla V100-SXM2-16GB", 0.0123)
    same = stash.predict("tinycnn", instance="p3.16xlarge", from_profile=measured)
    assert same.steps["solo"].seconds_per_iteration.estimate == pytest.approx(0.0123)
    other = stash.predict("tinycnn", instance="p4d.24xlarge", from_profile=measured)
    blind = stash.predict("tinycnn", instance="p4d.24xlarge", batch_size=16)
    factor = 0.0123 / (
        stash.predict("tinycnn", instance="p3.16xlarge", batch_size=16)
        .steps["solo"]
        .seconds_per_iteration.estimate
    )
    assert other.steps["solo"].seconds_per_iteration.estimate == pytest.approx(
        blind.steps["solo"].seconds_per_iteration.estimate * factor
    )


def seconds(found: Profile, step: str) -> float:
    return found.steps[step].seconds_per_iteration.estimate


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_size": 64}, "another batch size"),
        ({"dtype": "amp"}, "another precision"),
        ({"instance": "p4d.24xlarge"}, "another GPU"),
    ],
)
def test_a_profile_of_another_batch_precision_or_gpu_leaves_the_bounds_of_specifications(
    changes: dict[str, Any], named: str
) -> None:
    measured = on_a_gpu(sample(), "Tesla V100-SXM2-16GB", 0.0123)
    same = stash.predict("tinycnn", instance="p3.16xlarge", from_profile=measured)
    assert same.steps["solo"].seconds_per_iteration.low is None
    assert [one.name for one in same.checks if one.name == "calibration"] == []
    other = stash.predict(
        "tinycnn", **{"instance": "p3.16xlarge", "from_profile": measured, **changes}
    )
    solo = other.steps["solo"].seconds_per_iteration
    assert solo.low is not None and solo.high is not None
    assert solo.high / solo.low == pytest.approx(BLIND_SOLO.high / BLIND_SOLO.low)
    (check,) = [one for one in other.checks if one.name == "calibration"]
    assert named in check.message


def test_stalls_from_specifications_have_the_bounds_of_such_stalls() -> None:
    found = stash.predict("resnet50", instance="p3.16xlarge")
    solo, node = seconds(found, "solo"), seconds(found, "node")
    bounds = band("blind over solo", "node")
    stall = found.stalls["interconnect"]
    assert stall.percent is not None and stall.percent.high is not None
    assert stall.percent.high == pytest.approx(100 * (node / solo * bounds.high - 1))
    assert found.waiting.later is not None and found.waiting.later.high is not None
    assert found.waiting.later.high == pytest.approx(1 - solo / node / bounds.high)
    # In seconds, one worker's own time is as uncertain as it is.
    ratio = node / solo
    low, high = stall_bounds(ratio - 1, ratio * bounds.low - 1, ratio * bounds.high - 1, BLIND_SOLO)
    found_seconds = stall.seconds_per_iteration
    assert (found_seconds.low, found_seconds.high) == pytest.approx((low * solo, high * solo))


def test_a_step_from_specifications_has_the_bounds_of_both_its_parts() -> None:
    found = stash.predict("resnet50", instance="p3.16xlarge", nnodes=2)
    for step, kind in (("node", "node"), ("scaleout", "nodes")):
        bounds, each = band("blind", kind), found.steps[step].seconds_per_iteration
        assert each.low == pytest.approx(each.estimate * bounds.low)
        assert each.high == pytest.approx(each.estimate * bounds.high)


def test_stalls_over_a_measured_worker_have_the_bounds_of_the_step() -> None:
    measured = on_a_gpu(sample(), "Tesla V100-SXM2-16GB", 0.0123)
    found = stash.predict("tinycnn", instance="p3.16xlarge", from_profile=measured)
    node = found.steps["node"].seconds_per_iteration
    stall = found.stalls["interconnect"].seconds_per_iteration
    assert node.low is not None and node.high is not None
    assert (stall.low, stall.high) == pytest.approx((node.low - 0.0123, node.high - 0.0123))


def of_one_worker() -> Profile:
    """As usual_steps(1) measures it: there is no step solo."""
    machine = {"devices": ("NVIDIA A10G",), "workers_per_node": 1}
    return profile_of(
        noisy({"node": 0.060, "warm": 0.070}, noise_seconds=0.0),
        machine_changes=machine,
        workload_changes={"dtype": "amp"},
    )


def test_a_profile_of_one_worker_calibrates_by_its_step_node() -> None:
    found = stash.predict("resnet18", instance="g5.xlarge", from_profile=of_one_worker())
    assert seconds(found, "node") == pytest.approx(0.060)
    assert found.prediction is not None
    assert "measured on A10G" in found.prediction.calibrated_on


def test_batch_and_precision_are_the_profiles_unless_said() -> None:
    measured = of_one_worker()
    found = stash.predict("resnet18", instance="g5.xlarge", from_profile=measured)
    assert (found.workload.batch_per_worker, found.workload.dtype) == (32, "amp")
    said = stash.predict("resnet18", instance="g5.xlarge", from_profile=measured, dtype="bf16")
    assert said.workload.dtype == "bf16"
    assert stash.predict("resnet18", instance="g5.xlarge").workload.dtype == "fp32"


def test_a_rate_of_ones_own_leaves_the_profiles_data_as_they_are() -> None:
    # 10,000 samples of 100 kB; a disk of 10 MB/s gives 100 a second, a batch of 32 in 0.32 s.
    found = stash.predict(
        "resnet18",
        instance="p3.2xlarge",
        from_profile=of_one_worker(),
        samples_per_core=1000.0,
        storage_mb_per_second=10.0,
    )
    assert found.workload.samples == 10_000
    assert found.rates.preprocessing is not None and found.rates.storage is not None
    assert found.rates.preprocessing.estimate == 8 * 1000.0
    assert found.rates.storage.estimate == pytest.approx(100.0)
    assert seconds(found, "cold") == pytest.approx(0.32, rel=0.01)


@pytest.mark.parametrize(("loader_workers", "cores"), [(0, 2), (1, 2), (2, 4), (8, 8)])
def test_a_rate_is_that_of_the_cores_that_prepared(loader_workers: int, cores: int) -> None:
    # Two workers on 8 cores prepare 320 a second; without loader workers each does so by itself.
    source, _ = data_rates(profile_of(workload_changes={"loader_workers": loader_workers}))
    assert source is not None
    assert source.preprocessing_per_core == pytest.approx(320 / cores)


def test_nodes_of_one_gpu_have_a_scale_out_stall_and_no_other() -> None:
    found = stash.predict("resnet50", instance="g4dn.xlarge", nnodes=4)
    assert set(found.steps) == {"node", "scaleout"}  # as where they are measured
    assert set(found.stalls) == {"scale-out"}
    more = seconds(found, "scaleout") - seconds(found, "node")
    assert found.stalls["scale-out"].seconds_per_iteration.estimate == pytest.approx(more)
    alone = stash.predict("resnet50", instance="g4dn.xlarge")
    assert found.steps["node"] == alone.steps["solo"]
    assert "not told apart" not in text_of(found)


@pytest.mark.parametrize(
    ("instance", "told"),
    [("g4dn.xlarge", {}), ("a2-highgpu-1g", {"sample_bytes": 110_000.0})],
)
def test_without_a_sample_or_a_disk_nothing_is_said_of_fetch(
    instance: str, told: dict[str, float]
) -> None:
    found = stash.predict(
        "resnet50", instance=instance, samples_per_core=50.0, samples=10_000, **told
    )
    assert set(found.steps) == {"node", "warm"}
    assert set(found.stalls) == {"prep"}
    assert found.epoch.first is None and found.epoch.later is not None
    (check,) = [one for one in found.checks if one.name == "storage"]
    assert check.status == "warn"
    assert "--storage-mb-per-second" in check.next
    assert "Not predicted: fetch. It needs the rate of storage" in " ".join(text_of(found).split())


def test_one_gpu_with_data_does_not_wait_for_itself() -> None:
    found = stash.predict(
        "resnet50", instance="g4dn.xlarge", samples_per_core=50.0, sample_bytes=110_000.0
    )
    assert set(found.steps) == {"node", "warm", "cold"}
    assert set(found.stalls) == {"prep", "fetch"}
    alone = stash.predict("resnet50", instance="g4dn.xlarge")
    assert found.steps["node"] == alone.steps["solo"]
    page = " ".join(text_of(found).split())
    assert "interconnect needs two workers or more" in page
    assert "not told apart" not in page


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("samples", -5),
        ("samples_per_core", 0.0),
        ("sample_bytes", 0.0),
        ("storage_mb_per_second", 0.0),
        ("samples_per_core", float("nan")),
    ],
)
def test_a_number_that_must_be_positive_is_refused_by_its_option(option: str, value: float) -> None:
    name = f"--{option.replace('_', '-')} must be above 0"
    with pytest.raises(UsageError, match=name):
        stash.predict("resnet18", instance="p3.2xlarge", **{option: value})


def test_the_command_prints_the_same_document(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["predict", "resnet18", "--instance", "p3.2xlarge", "--out", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    printed = Profile.from_json(capsys.readouterr().out)
    (kept,) = tmp_path.glob("*.json")
    assert Profile.load(kept) == printed
    assert set(printed.steps) == {"solo"}
    assert main(["predict", "resnet18", "--instance", "nowhere"]) == 2


def test_the_catalog_is_listed_shown_and_filtered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["catalog", "list", "--gpu", "v100", "--cloud", "aws", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["p3dn.24xlarge"]
    assert main(["catalog", "list", "--gpu", "v100", "--status", "retired", "--json"]) == 0
    names = {row["name"] for row in json.loads(capsys.readouterr().out)}
    assert {"p3.2xlarge", "p3.16xlarge"} <= names
    assert main(["catalog", "list", "--max-usd", "1", "--status", "all"]) == 0
    assert "machine" in capsys.readouterr().out
    assert main(["catalog", "show", "p3.16xlarge"]) == 0
    assert "3 rings" in capsys.readouterr().out
    assert main(["catalog", "list", "--status", "gone"]) == 2
    (tmp_path / "aws.csv").write_text(
        "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size\n"
        "p4d.24xlarge,us-east-1,20.5,96,1152,8,A100,40,False,\n"
    )
    assert main(["catalog", "refresh", "--folder", str(tmp_path), "--cloud", "aws"]) == 1
    assert "Refused" in capsys.readouterr().err
