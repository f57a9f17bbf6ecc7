"""Generated jobs, really run: by a Slurm of this machine, and on test hosts as clouds would."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from launch.running import TINY
from launch.slurm_here import NEEDS_SLURM, Slurm, cluster
from rooted import NEEDS_ROOT
from stash.lab.network import Host, hosts
from stash.launch import carry, kubernetes, sky
from stash.launch.job import Job
from stash.results.profile import Profile
from workloads_for_tests.tiny import write_pictures

pytestmark = [pytest.mark.gang, pytest.mark.proof]

SHORT = ("--nproc-per-node", "1", "--max-rounds", "2", "--steps", "node,scaleout")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"), 32)


def words(pictures: Path) -> list[str]:
    return [f"{TINY}:pictures", "--data", str(pictures), *SHORT]


class TestSlurm:
    pytestmark = NEEDS_SLURM

    @pytest.fixture
    def slurm(self, tmp_path: Path) -> Iterator[Slurm]:
        folder = tmp_path / "slurm"
        folder.mkdir()
        with cluster(folder, nodes=2) as running:
            yield running

    def test_one_command_and_the_profile_of_two_nodes_arrives(
        self, slurm: Slurm, pictures: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "my profiles"  # a name that wants quoting everywhere
        launch = [sys.executable, "-m", "stash", "launch", "slurm", "--nnodes", "2"]
        launch += ["--submit", "--wait", "--json", "--time", "5", "--out", str(out)]
        done = subprocess.run(
            [*launch, *words(pictures)],
            env={**os.environ, **slurm.environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (path,) = out.glob("*.json")
        profile = Profile.load(path)
        assert json.loads(done.stdout)["id"] == profile.id
        assert (profile.machine.nodes, profile.machine.workers_per_node) == (2, 1)
        assert profile.run.rounds == 2 and "scaleout" in profile.steps
        assert profile.machine.cores == os.cpu_count()  # Slurm binds a task to one core otherwise

    def test_nodes_of_a_step_meet_though_nobody_knows_their_names(
        self, slurm: Slurm, pictures: Path, tmp_path: Path
    ) -> None:
        step = ["srun", "--nodes=2", "--ntasks-per-node=1", "--exclusive", "--cpu-bind=none"]
        step += [sys.executable, "-m", "stash", "profile", "--out", str(tmp_path / "out")]
        done = subprocess.run(
            [*step, *words(pictures)],
            env={**os.environ, **slurm.environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (path,) = (tmp_path / "out").glob("*.json")
        assert Profile.load(path).machine.nodes == 2


class TestHosts:
    pytestmark = NEEDS_ROOT

    @pytest.mark.parametrize("platform", ["sky", "kubernetes"])
    def test_commands_of_a_cloud_run_on_hosts_with_its_variables(
        self, platform: str, pictures: Path, tmp_path: Path
    ) -> None:
        job = Job(workload="tiny", options=tuple(words(pictures)), nodes=2, workers_per_node=1)
        with hosts(2, "1gbit") as pair:
            logs = run_on(pair, platform, script_of(platform, job), tmp_path)
        profile = carry.unpack("\n".join(logs))
        assert (profile.machine.nodes, profile.machine.workers_per_node) == (2, 1)
        assert profile.run.rounds == 2
        assert "stash-profile 1/" not in logs[1]  # the first node alone tells it


def script_of(platform: str, job: Job) -> str:
    """What the generated file has a node run."""
    if platform == "sky":
        return str(yaml.safe_load(sky.task(job, sky.SkyOptions()))["run"])
    manifest = yaml.safe_load(kubernetes.manifest(job, kubernetes.KubernetesOptions()))
    return str(manifest["spec"]["trainer"]["command"][2])


def variables(platform: str, pair: tuple[Host, ...], node: int) -> dict[str, str]:
    """Those that the platform sets on this node."""
    if platform == "sky":
        addresses = "\n".join(host.address for host in pair)
        return {
            "SKYPILOT_NODE_IPS": addresses,
            "SKYPILOT_NODE_RANK": str(node),
            "SKYPILOT_NUM_NODES": str(len(pair)),
        }
    return {
        "PET_NNODES": str(len(pair)),
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(node),
        "PET_MASTER_ADDR": pair[0].address,
        "PET_MASTER_PORT": "29400",
    }


def run_on(pair: tuple[Host, ...], platform: str, script: str, folder: Path) -> list[str]:
    """The script on every host at once; what each one printed."""
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with contextlib.ExitStack() as ended:
        running = []
        for node, host in enumerate(pair):
            own = folder / f"node-{node}"
            own.mkdir()
            path = {"PATH": f"{folder}:{os.environ['PATH']}"}
            process = subprocess.Popen(
                [*host.inside, "bash", "-c", script],
                cwd=own,
                env={**os.environ, **variables(platform, pair, node), **path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            ended.callback(process.kill)
            running.append(process)
        logs = [process.communicate(timeout=120)[0] for process in running]
        assert [process.returncode for process in running] == [0, 0], "\n".join(logs)
    return logs
