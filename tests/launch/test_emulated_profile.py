"""One real measurement on emulated accelerators, over pictures of which one is damaged."""

from __future__ import annotations

import contextlib
import itertools
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from launch.running import assert_no_orphans, temporary_files_in
from stash.hardware import gpus
from stash.hardware.machine import usable_cores
from stash.launch.api import Measured, measure
from stash.launch.request import Request
from stash.launch.supervise import Event
from stash.results.profile import Profile, Provenance
from stash.results.recording import Phase, Round
from stash.workloads import zoo
from workloads_for_tests.tiny import write_pictures

pytestmark = pytest.mark.gang

DEVICE = "emulated:v100:bytes=0.01"


#: Longer than a round takes.
DAWDLE_SECONDS = 0.9


class Audience:
    """Looks at what is new for a long time, as a slow terminal does."""

    def __init__(self) -> None:
        self.batches: list[list[Event]] = []

    def __call__(self, events: Iterable[Event]) -> None:
        if new := list(events):
            self.batches.append(new)
        if any(isinstance(event, Round) for event in new):
            time.sleep(DAWDLE_SECONDS)


@pytest.fixture(scope="module")
def audience() -> Audience:
    return Audience()


@pytest.fixture(scope="module")
def measured(audience: Audience) -> Iterator[Measured]:
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        folder = Path(name)
        data = write_pictures(folder / "data", 24)
        (data / "0000.jpg").write_bytes((data / "0001.jpg").read_bytes()[:200])
        request = Request(
            workload="resnet18",
            device=DEVICE,
            nproc_per_node=2,
            batch_size=4,
            num_workers=1,
            data=data,
            max_rounds=3,
            out=folder / "out",
        )
        with temporary_files_in(folder):
            yield measure(request, audience)
        assert_no_orphans(folder)


@pytest.fixture(scope="module")
def profile(measured: Measured) -> Profile:
    return measured.profile


def test_it_says_that_it_is_emulated(measured: Measured, profile: Profile) -> None:
    assert measured.exit_code == 0
    assert profile.provenance is Provenance.EMULATED
    gpu = gpus.find("v100")
    assert profile.machine.device == f"emulated:{gpu.key}:bytes=0.01"
    assert profile.machine.devices == (gpu.name, gpu.name)
    assert profile.machine.device_memory_bytes == gpu.memory_bytes


def test_workers_rest_while_what_is_new_is_shown(
    measured: Measured, audience: Audience, profile: Profile
) -> None:
    """Blocks are timed only when nobody looks: news never pile up, however slow they are shown."""
    shown = [[e for e in batch if isinstance(e, Phase | Round)] for batch in audience.batches]
    assert max(len(batch) for batch in shown) == 1
    rounds = [event for batch in shown for event in batch if isinstance(event, Round)]
    assert [one.number for one in rounds] == [0, 1, 2]
    for before, after in itertools.pairwise(rounds):
        assert after.at_seconds - before.at_seconds > DAWDLE_SECONDS


def test_parameters_and_gradients_are_those_of_the_real_model(profile: Profile) -> None:
    parameters = zoo.count_parameters("resnet18")
    assert profile.workload.parameters == parameters
    assert profile.workload.gradient_bytes == 4 * parameters


def test_all_steps_and_stalls_are_measured_there_too(profile: Profile) -> None:
    assert set(profile.steps) == {"solo", "unsynced", "node", "warm", "cold"}
    assert set(profile.stalls) == {
        "interconnect",
        "contention",
        "communication",
        "prep",
        "fetch",
    }


def test_an_iteration_lasts_at_least_as_long_as_the_emulated_device_needs(
    profile: Profile,
) -> None:
    """Batch norm, pooling and convolutions at batch 4, by the table's figures for a V100."""
    gpu = gpus.find("v100")
    layers = zoo.layers("resnet18", 4).layers
    forward = sum(gpu.seconds(one.forward_flops, one.forward_bytes, "fp32") for one in layers)
    for step, result in profile.steps.items():
        for block in result.blocks:
            own = [s for s in block.seconds if s is not None]
            assert min(own) / block.iterations > 0.9 * 3 * forward, step


def test_a_damaged_picture_is_named_and_counted_but_not_fatal(profile: Profile) -> None:
    check = next(check for check in profile.checks if check.name == "readable data")
    assert check.status == "warn" and check.next
    assert check.message.startswith("1 file(s) could not be read")
    assert "0000.jpg" in check.message


def test_the_processors_share_in_the_emulation_is_checked(profile: Profile) -> None:
    assert any(check.name == "emulation headroom" for check in profile.checks)


#: Keeps a core busy for as long as its input is open.
BUSY = """
import select, sys
while not select.select([sys.stdin], [], [], 0)[0]:
    sum(range(100_000))
"""


@pytest.mark.proof
def test_a_program_beside_a_run_is_told(tmp_path: Path) -> None:
    with contextlib.ExitStack() as ended:
        for _ in range(math.ceil(usable_cores() / 2)):
            busy = subprocess.Popen([sys.executable, "-I", "-c", BUSY], stdin=subprocess.PIPE)
            ended.callback(busy.wait)
            ended.callback(busy.kill)
        request = Request(
            workload="resnet18",
            device=DEVICE,
            nproc_per_node=1,
            batch_size=4,
            steps=("node",),
            max_rounds=2,
            out=tmp_path,
        )
        profile = measure(request).profile
    check = next(check for check in profile.checks if check.name == "other programs")
    assert check.status == "warn", check.message
