"""`stash.profile(...)` from a program, on more workers than there are cores."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import stash
from launch.running import TINY
from stash.results.profile import Profile
from workloads_for_tests.tiny import write_pictures

pytestmark = pytest.mark.gang

#: Whoever embeds Stash keeps its own way of being interrupted and its own folder.
PROGRAM = """
import json, os, signal, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
import stash
handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
profile = stash.profile(
    sys.argv[1], nproc_per_node=3, data=sys.argv[2], out=sys.argv[3], max_rounds=2,
    steps=("node", "warm"), seed=7,
)
try:
    stash.profile("resnet19")
except stash.StashError as error:
    refused = [error.exit_code, error.message]
print(json.dumps({
    "type": f"{type(profile).__module__}.{type(profile).__name__}",
    "id": profile.id,
    "refused": refused,
    "handlers kept": handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)],
}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("api")
    data = write_pictures(folder / "data", 24)
    arguments = [f"{TINY}:own_loader", str(data), "out"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "out").glob("*.json")
    return {**json.loads(done.stdout), "path": path, "errors": done.stderr}


@pytest.fixture(scope="module")
def profile(told: dict[str, Any]) -> Profile:
    return stash.load(told["path"])


def test_it_returns_a_profile_and_saves_the_same(told: dict[str, Any], profile: Profile) -> None:
    assert told["type"] == "stash.results.profile.Profile"
    assert profile.id == told["id"] and profile.run.rounds == 2


def test_it_prints_nothing_of_its_own(told: dict[str, Any]) -> None:
    assert told["errors"] == ""


def test_a_mistake_is_an_exception_with_the_words_of_the_command(told: dict[str, Any]) -> None:
    code, message = told["refused"]
    assert code == 2 and "resnet19" in message and "did you mean" in message


def test_the_programs_own_signal_handlers_are_given_back(told: dict[str, Any]) -> None:
    assert told["handlers kept"]


def test_more_workers_than_cores_are_warned_of_and_measured_all_the_same(profile: Profile) -> None:
    assert profile.machine.workers == 3 and profile.machine.cores == 2
    assert not profile.machine.pinned
    warned = {check.name for check in profile.checks if check.status == "warn"}
    assert {"cores", "pinning", "loader cores"} <= warned
    for result in profile.steps.values():
        assert all(len(block.seconds) == 3 for block in result.blocks)


def test_the_users_own_loader_keeps_its_batch_and_workers(profile: Profile) -> None:
    assert profile.workload.batch_per_worker == 3 and profile.workload.loader_workers == 1
    assert profile.workload.samples == 24


def test_steps_that_were_not_asked_for_are_absent(profile: Profile) -> None:
    assert set(profile.steps) == {"node", "warm"} and set(profile.stalls) == {"prep"}
    assert profile.epoch.first is None and profile.epoch.later is not None
