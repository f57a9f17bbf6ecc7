"""One real measurement of a user's own workload, by the command, and everything it leaves."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import stash
from launch.running import STASH, TINY
from stash.cli.main import main
from stash.results import store
from stash.results.document import Interval
from stash.results.profile import Profile, Provenance
from stash.results.recording import Block, Check
from workloads_for_tests.tiny import model, write_pictures

pytestmark = pytest.mark.gang

ROUNDS = 3
PICTURES = 96
PRICE = 3.6
STEPS = ("solo", "unsynced", "node", "warm", "cold")
#: By hand, from docs/design.md.
STALLS = {
    "interconnect": ("node", "solo"),
    "contention": ("unsynced", "solo"),
    "communication": ("node", "unsynced"),
    "prep": ("warm", "node"),
    "fetch": ("cold", "warm"),
}
Captured = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Run:
    code: int
    output: str
    errors: str
    folder: Path
    data: Path


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        folder = Path(name)
        data = write_pictures(folder / "data", PICTURES)
        command: list[object] = [STASH, "profile", f"{TINY}:pictures", "--data", data, "--json"]
        command += ["--nproc-per-node", 2, "--num-workers", 1, "--device", "cpu"]
        command += ["--max-rounds", ROUNDS, "--price-usd-per-hour", PRICE, "--out", folder / "out"]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        yield Run(done.returncode, done.stdout, done.stderr, folder / "out", data)


@pytest.fixture(scope="module")
def profile(run: Run) -> Profile:
    (path,) = run.folder.glob("*.json")
    return stash.load(path)


def check_of(profile: Profile, name: str) -> Check:
    return next(check for check in profile.checks if check.name == name)


def assert_interval(interval: Interval | None) -> None:
    assert interval is not None and interval.low is not None and interval.high is not None
    assert interval.low <= interval.estimate <= interval.high
    assert interval.low < interval.high


def by_round(profile: Profile, step: str) -> list[float]:
    """Seconds per iteration from the raw blocks: from the last lead-in to the last end."""
    blocks = sorted(profile.steps[step].blocks, key=lambda block: block.round)
    return [(last_end(b) - last_lead_in(b)) / b.iterations for b in blocks]


def last_lead_in(block: Block) -> float:
    return max(lead for lead in block.lead_in_seconds if lead is not None)


def last_end(block: Block) -> float:
    ends = zip(block.lead_in_seconds, block.seconds, strict=True)
    return max(lead + own for lead, own in ends if lead is not None and own is not None)


def test_the_profile_is_in_the_store_and_is_what_was_printed(run: Run, profile: Profile) -> None:
    assert json.loads(run.output) == json.loads(profile.to_json())
    assert json.loads(run.output)["schema"] == "stash.profile/1"
    ((path, entry),) = store.entries(run.folder)
    assert isinstance(entry, Profile) and entry == profile and profile.id in path.name


def test_progress_goes_to_standard_error_and_tells_every_phase(run: Run) -> None:
    phases = ("preparing", "recording", "warming up", "calibrating", "loader rates", "measuring")
    places = [run.errors.index(f"stash: {phase}") for phase in phases]
    assert places == sorted(places) and "1 round" in run.errors
    assert "Traceback" not in run.errors


def test_it_says_what_was_trained(run: Run, profile: Profile) -> None:
    workload = profile.workload
    parameters = sum(p.numel() for p in model().parameters())
    assert workload.name == "tiny pictures" and workload.optimizer == "SGD"
    assert workload.parameters == parameters and workload.gradient_bytes == 4 * parameters
    assert (workload.batch_per_worker, workload.samples, workload.loader_workers) == (4, 96, 1)
    assert workload.dtype == "fp32" and workload.data == str(run.data)
    size = sum(path.stat().st_size for path in run.data.iterdir())
    assert workload.data_bytes is not None and 0.8 * size < workload.data_bytes < 2.0 * size


def test_it_says_on_what(profile: Profile) -> None:
    machine = profile.machine
    assert (machine.nodes, machine.workers_per_node, machine.workers) == (1, 2, 2)
    assert machine.device == "cpu" and machine.backend == "gloo" and len(machine.devices) == 2
    assert machine.cores_per_worker == machine.cores / 2
    assert machine.pinned == (machine.cores >= 2)
    assert machine.price_usd_per_hour == PRICE


def test_a_real_run_is_measured_and_says_how_it_went(profile: Profile) -> None:
    assert profile.provenance is Provenance.MEASURED
    assert profile.run.stopped_because == "rounds" and profile.run.rounds == ROUNDS
    assert profile.run.launches == 1 and profile.run.message == ""
    peaks = profile.run.peak_device_memory_bytes
    assert len(peaks) == 2 and all(peak is not None and peak > 1e7 for peak in peaks)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_an_interval_and_its_raw_blocks_by_worker(
    profile: Profile, step: str
) -> None:
    result = profile.steps[step]
    assert_interval(result.seconds_per_iteration)
    assert result.rounds == len(result.blocks) == ROUNDS
    assert sorted(block.round for block in result.blocks) == list(range(ROUNDS))
    for block in result.blocks:
        first, second = block.seconds
        assert first is not None and first > 0
        assert (second is None) == (step == "solo")
        assert len(block.lead_in_seconds) == 2 and block.lead_in_iterations >= 1
        assert profile.calibration is not None
        assert block.iterations == profile.calibration.block_iterations[step]
        assert (block.loader_read_bytes is not None) == (step in ("warm", "cold"))


def test_exactly_the_steps_and_stalls_of_one_machine_are_there(profile: Profile) -> None:
    assert set(profile.steps) == set(STEPS)
    assert set(profile.stalls) == set(STALLS)


@pytest.mark.parametrize("name", STALLS)
def test_a_stall_is_the_difference_of_its_steps_within_rounds(profile: Profile, name: str) -> None:
    stall = profile.stalls[name]
    more, less = (by_round(profile, step) for step in STALLS[name])
    differences = [a - b for a, b in zip(more, less, strict=True)]
    assert stall.mean_seconds_per_iteration == pytest.approx(statistics.fmean(differences))
    estimate = stall.seconds_per_iteration.estimate
    assert min(differences) - 1e-12 <= estimate <= max(differences) + 1e-12
    assert_interval(stall.seconds_per_iteration)
    assert_interval(stall.percent)
    assert stall.detectable_seconds_per_iteration is not None
    low, high = stall.seconds_per_iteration.low, stall.seconds_per_iteration.high
    assert low is not None and high is not None
    assert stall.significant == (low > 0 or high < 0)
    assert (stall.share is None) == (name == "fetch")
    assert stall.share_of_first_epoch is not None and stall.usd_per_hour_of_training is not None
    share = stall.share or stall.share_of_first_epoch
    assert stall.usd_per_hour_of_training.estimate == pytest.approx(PRICE * share.estimate)


def test_contention_and_communication_are_parts_of_interconnect(profile: Profile) -> None:
    assert profile.stalls["contention"].part_of == "interconnect"
    assert profile.stalls["communication"].part_of == "interconnect"
    parts = [profile.stalls[n].mean_seconds_per_iteration for n in ("contention", "communication")]
    whole = profile.stalls["interconnect"].mean_seconds_per_iteration
    assert sum(parts) == pytest.approx(whole)


def test_cold_is_proven_by_the_bytes_that_storage_delivered(run: Run, profile: Profile) -> None:
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    kind = next(mounts[str(p)] for p in (run.data, *run.data.parents) if str(p) in mounts)
    if kind in ("tmpfs", "ramfs"):
        pytest.skip("the data lies in memory, not on a disk")
    cold, warm = check_of(profile, "cold"), check_of(profile, "warm")
    assert cold.status == "pass" and " 1.00 of their files" in cold.message
    assert warm.status == "pass" and " 0.00 of their files" in warm.message
    for block in profile.steps["cold"].blocks:
        assert block.loader_read_bytes == block.loader_file_bytes


def test_epochs_count_the_iterations_of_one_worker(profile: Profile) -> None:
    assert profile.calibration is not None
    for epoch, step in ((profile.epoch.first, "cold"), (profile.epoch.later, "warm")):
        assert epoch is not None and epoch.usd is not None
        assert epoch.iterations == math.ceil(PICTURES / 2 / 4)
        seconds = epoch.seconds.estimate
        assert seconds > 0.5 * epoch.iterations * min(by_round(profile, step))
        assert epoch.device_hours.estimate == pytest.approx(2 * seconds / 3600)
        assert epoch.usd.estimate == pytest.approx(PRICE * seconds / 3600)


def test_rates_are_told_of_devices_preprocessing_and_storage(profile: Profile) -> None:
    rates = profile.rates
    for rate in (rates.devices, rates.preprocessing, rates.storage):
        assert rate is not None and rate.estimate > 0
    assert rates.devices is not None
    together = 2 * 4 / profile.steps["node"].seconds_per_iteration.estimate
    assert rates.devices.estimate == pytest.approx(together)


def test_waiting_is_what_is_left_of_an_iteration_beside_compute(profile: Profile) -> None:
    for waiting, whole in ((profile.waiting.later, "warm"), (profile.waiting.first, "cold")):
        assert waiting is not None
        totals = [statistics.fmean(by_round(profile, step)) for step in ("solo", whole)]
        # Trimmed estimates differ from means, but not in sign and size.
        assert waiting.estimate == pytest.approx(1 - totals[0] / totals[1], abs=0.3)


def test_telemetry_is_kept_by_step(profile: Profile) -> None:
    assert set(profile.telemetry) == set(STEPS)
    for seen in profile.telemetry.values():
        # Above 100 only because the kernel counts in ticks and these blocks are short.
        assert 0 < seen.cpu_percent < 200 and seen.memory_used_bytes > 0


def test_every_check_has_words_and_warnings_say_what_to_do(profile: Profile) -> None:
    names = {check.name for check in profile.checks}
    wanted = {"warm-up", "cores", "loader cores", "pinning", "data in memory", "steal"}
    assert wanted | {"cold", "warm"} <= names
    for check in profile.checks:
        assert check.message and (check.next or check.status == "pass")


def test_the_calibration_tells_how_it_was_measured(profile: Profile) -> None:
    calibration = profile.calibration
    assert calibration is not None
    assert calibration.warm_up_iterations >= 8
    assert set(calibration.block_iterations) == set(calibration.lead_in_iterations) == set(STEPS)
    assert calibration.window_samples == 4 * calibration.window_batches
    assert 1 <= calibration.replay_batches <= calibration.window_batches
    assert calibration.loader_persistent and calibration.loader_start_seconds is not None


def test_show_list_and_python_agree(run: Run, profile: Profile, capsys: Captured) -> None:
    assert main(["show", profile.id[:4], "--folder", str(run.folder), "--json"]) == 0
    assert capsys.readouterr().out == profile.to_json() + "\n"
    assert main(["show", "--folder", str(run.folder)]) == 0
    shown = capsys.readouterr().out
    assert profile.id in shown and "tiny pictures" in shown
    assert all(name in shown for name in STALLS)
    assert main(["list", "--folder", str(run.folder), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    expected: dict[str, Any] = {
        "id": profile.id,
        "workload": "tiny pictures",
        "workers": 2,
        "device": "cpu",
        "provenance": "measured",
    }
    assert {key: listed[key] for key in expected} == expected
    assert stash.load(listed["path"]) == profile


def test_nothing_but_the_profile_is_left(run: Run) -> None:
    assert len(list(run.folder.iterdir())) == 1
