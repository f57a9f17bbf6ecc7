"""`stash profile` at several worker counts, `stash doctor`, and what both print."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from launch.running import STASH, TINY, assert_no_orphans, start_stash
from profiles import profile_of
from stash.cli.main import main
from stash.hardware.machine import usable_cores
from stash.launch.api import Measured
from stash.launch.nodes import Followed
from stash.results import store
from stash.results.profile import Profile
from workloads_for_tests.tiny import write_pictures

Captured = pytest.CaptureFixture[str]


def test_help_comes_at_once() -> None:
    """The best of three: whoever else is busy on this machine is not our concern."""
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        done = subprocess.run([str(STASH), "--help"], capture_output=True, text=True, timeout=30)
        seconds.append(time.monotonic() - began)
        assert done.returncode == 0 and "profile" in done.stdout
    assert min(seconds) < 2


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_a_failed_worker_said_is_shown_beside_the_report_and_steers_no_terminal(
    options: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = profile_of(failure="Worker 1 failed: KeyError at train.py:7.")
    measured = Measured(failed, tmp_path / "p.json", 1, "It said \x1b[2J s3cr3t.")
    monkeypatch.setattr("stash.launch.api.measure", lambda request, show: measured)
    assert main(["profile", "tinycnn", *options]) == 1
    told = capsys.readouterr()
    assert "s3cr3t" in told.err and "\x1b" not in told.err
    assert "train.py:7" in told.out and "s3cr3t" not in told.out


@pytest.mark.parametrize("code", [0, 1])
def test_what_another_node_told_steers_no_terminal(
    code: int, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Followed(code, "Profile written on \x1b[2J node:\n/p.json")
    monkeypatch.setattr("stash.launch.api.take_part", lambda request: told)
    there = ["--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "127.0.0.1:1"]
    assert main(["profile", "tinycnn", *there]) == code
    printed = "".join(capsys.readouterr())
    assert "written on \\x1b[2J node:\n/p.json" in printed and "\x1b" not in printed


@pytest.mark.parametrize("arguments", [["--help"], ["profile", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys; from stash.cli.main import main; main(sys.argv[1:]); "
        "print(*{'torch', 'scipy', 'numpy'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=30
    )
    assert done.stderr.strip() == "" and done.stdout


def test_doctor_tells_what_this_machine_can_measure(capsys: Captured, tmp_path: Path) -> None:
    assert main(["doctor", "--skip-noise", "--json", "--data", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cores"] == usable_cores() and found["torch"] == torch.__version__
    assert found["workers"] >= 1 and found["noise"] is None
    assert found["cold"]["status"] in ("pass", "warn") and found["cold"]["message"]
    assert {"node", "warm", "cold"} <= set(found["steps"])
    assert not set(found["steps"]) & set(found["missing_steps"])
    assert ("staged" in found["steps"]) == bool(found["gpus"])


def test_doctor_says_it_in_words_too(capsys: Captured, tmp_path: Path) -> None:
    assert main(["doctor", "--skip-noise", "--nproc-per-node", "1", "--data", str(tmp_path)]) == 0
    lines = capsys.readouterr().out
    for heading in ("Machine", "Per worker", "GPUs", "Cold reads", "Steps", "Noise floor"):
        assert f"\n{heading}" in "\n" + lines
    assert "no solo: one worker has nobody to exchange with" in lines


def test_doctor_does_not_mind_a_folder_that_is_not_there(capsys: Captured, tmp_path: Path) -> None:
    assert main(["doctor", "--skip-noise", "--json", "--data", str(tmp_path / "no")]) == 0
    cold = json.loads(capsys.readouterr().out)["cold"]
    assert cold["status"] == "warn" and "could not be tried" in cold["message"]


@dataclass(frozen=True)
class Sweep:
    """One `stash profile --sweep 1,2`, and what it wrote."""

    output: str
    one: Profile
    two: Profile

    @property
    def report_of_one(self) -> str:
        return self.output[: self.output.index("Profile written to")]


@pytest.fixture(scope="module")
def sweep() -> Iterator[Sweep]:
    with tempfile.TemporaryDirectory(prefix="st-") as name:
        folder = Path(name)
        data = write_pictures(folder / "data", 48)
        running = start_stash(
            folder,
            *("profile", f"{TINY}:pictures", "--data", data, "--sweep", "1,2"),
            *("--max-rounds", 2, "--out", folder / "out"),
        )
        assert running.wait(90) == 0, running.errors
        one, two = (entry for _, entry in store.entries(folder / "out"))
        assert isinstance(one, Profile) and isinstance(two, Profile)
        yield Sweep(running.output, one, two)
        assert_no_orphans(folder)


@pytest.mark.gang
def test_a_sweep_measures_every_worker_count(sweep: Sweep) -> None:
    assert (sweep.one.machine.workers, sweep.two.machine.workers) == (1, 2)
    assert sweep.output.count("Profile written to") == 2
    assert sweep.one.id in sweep.output and sweep.two.id in sweep.output


@pytest.mark.gang
def test_a_sweep_compares_like_with_like(sweep: Sweep) -> None:
    one, two = sweep.one, sweep.two
    assert one.machine.threads_per_worker == two.machine.threads_per_worker
    assert one.workload.loader_workers == two.workload.loader_workers


@pytest.mark.gang
def test_a_sweep_ends_in_a_scaling_table(sweep: Sweep) -> None:
    table = sweep.output[sweep.output.rindex("Profile written to") :]
    assert all(word in table for word in ("workers", "samples/s", "speed-up", "efficiency"))
    rows = [line.split() for line in table.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("1", "2")] == ["1", "2"]
    assert "1 x" in table and "100 %" in table


@pytest.mark.gang
def test_one_worker_has_prep_and_fetch_only_and_is_told_so_plainly(sweep: Sweep) -> None:
    assert set(sweep.one.steps) == {"node", "warm", "cold"}
    assert set(sweep.one.stalls) == {"prep", "fetch"}
    assert sweep.one.waiting.later is not None
    words = " ".join(sweep.report_of_one.split())
    assert "1 worker" in words and "interconnect" in words and "two workers" in words
