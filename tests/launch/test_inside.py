"""`stash profile` under somebody else's torchrun: its processes are the workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stash.errors import UsageError
from stash.launch import inside
from stash.launch.request import Request
from stash.results.profile import Profile


@pytest.mark.gang
def test_workers_that_torchrun_has_started_measure_and_start_nothing(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words = ["profile", "tinycnn", "--device", "emulated:v100:bytes=0.05:time=20"]
    words += ["--steps", "unsynced,node", "--max-rounds", "2", "--out", str(tmp_path)]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", "-m", "stash", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    profile = Profile.load(path)
    assert (profile.machine.workers, profile.run.rounds) == (2, 2)
    assert profile.workload.name == "tinycnn"
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nproc_per_node": 4}, "has started 2 workers"),
        ({"launches": 2}, "--launches"),
        ({"resume": Path("p.json")}, "--resume"),
        ({"protect": (Path("checkpoints"),)}, "--protect"),
        ({"batch_size": "max"}, "Profile one machine .* Then give that number"),
    ],
)
def test_what_only_a_launcher_of_our_own_can_do_is_refused(
    options: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(inside, "prepare", lambda *details, **more: pytest.fail("not refused"))
    with pytest.raises(UsageError, match=words):
        inside.run(Request(workload="tinycnn", **options))  # type: ignore[arg-type]
