"""Which node this is: by options, or by the variables of the launcher around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stash.errors import UsageError
from stash.launch import placement
from stash.launch.placement import Placement, first_host, is_worker, place, workers_told
from stash.launch.request import Request


def placed(environment: dict[str, str] | None = None, **options: Any) -> Placement:
    return place(Request(workload="resnet18", **options), environment or {})


TORCHRUN = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "4",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}
SLURM = {
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "gpu[07-09]",
    "SLURM_NODEID": "2",
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "0",
}
PODS = {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": "1"}


def test_without_a_word_there_is_one_node_that_listens_on_the_loopback() -> None:
    assert placed() == Placement(1, 0, "127.0.0.1", 0)
    assert placed(nnodes=1) == Placement()


def test_options_are_those_of_torchrun() -> None:
    found = placed(nnodes=2, node_rank=1, rdzv_endpoint="10.0.0.1:29400")
    assert found == Placement(2, 1, "10.0.0.1", 29400)
    assert not found.leads
    assert placed(nnodes=2, node_rank=0, rdzv_endpoint="[fd00::1]:29400").host == "fd00::1"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nnodes": 2}, "--node-rank"),
        ({"nnodes": 2, "node_rank": 2, "rdzv_endpoint": "h:1"}, "numbered 0 to 1"),
        ({"nnodes": 2, "node_rank": 0, "rdzv_endpoint": "h"}, "HOST:PORT"),
        ({"nnodes": 2, "node_rank": 0, "rdzv_endpoint": "h:99999"}, "HOST:PORT"),
        ({"nnodes": 0}, "1 or more"),
        ({"node_rank": 1}, "--nnodes of 2 or more"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        placed(**options)


def test_torchruns_variables_place_a_node() -> None:
    assert placed(TORCHRUN) == Placement(2, 1, "job-node-0-0.job", 29400)
    assert workers_told(TORCHRUN) == 4
    assert workers_told({"PET_NPROC_PER_NODE": "auto"}) is None
    assert placed({**TORCHRUN, "PET_NNODES": "1"}) == Placement()
    with pytest.raises(UsageError, match="fixed number of nodes"):
        placed({**TORCHRUN, "PET_NNODES": "1:4"})


def test_a_job_step_of_slurm_places_a_node() -> None:
    found = placed(SLURM)
    assert (found.nodes, found.node, found.host) == (3, 2, "gpu07")
    assert found.port == placed({**SLURM, "SLURM_NODEID": "0"}).port
    assert found.port != placed({**SLURM, "SLURM_JOB_ID": "123457"}).port


@pytest.mark.parametrize(
    ("scontrol", "host"),
    [
        ('[ "$*" = "show node gpu07" ] && echo "   NodeAddr=10.0.0.7 Port=1"', "10.0.0.7"),
        ("echo slurm_load_node error: Unable to contact slurm controller >&2; exit 1", "gpu07"),
        ("exec sleep 60", "gpu07"),
    ],
)
def test_nodes_of_a_job_step_meet_where_slurm_reaches_the_first_one(
    scontrol: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "SCONTROL_SECONDS", 1.0)
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{scontrol}\n")
    (tmp_path / "scontrol").chmod(0o755)
    assert placed({**SLURM, "PATH": f"{tmp_path}:/usr/bin:/bin"}).host == host


@pytest.mark.parametrize("nodes", ["3", "1"])
def test_several_tasks_on_a_node_are_refused(nodes: str) -> None:
    several = {**SLURM, "SLURM_STEP_NUM_NODES": nodes, "SLURM_STEP_NUM_TASKS": "6"}
    with pytest.raises(UsageError, match=f"one of 6 tasks on {nodes} node.*--ntasks-per-node=1"):
        placed(several)
    assert placed(several, nnodes=1) == Placement()


def test_one_task_on_one_node_of_slurm_is_one_machine() -> None:
    alone = {**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}
    assert placed(alone) == Placement()


def test_a_batch_script_of_slurm_alone_is_one_machine() -> None:
    batch = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4", "SLURM_PROCID": "0"}
    assert placed(batch) == Placement()


def test_pods_of_a_training_operator_are_nodes() -> None:
    assert placed(PODS) == Placement(2, 1, "job-master-0", 23456)


def test_a_process_that_torchrun_started_is_a_worker_and_no_node() -> None:
    worker = {**PODS, "LOCAL_RANK": "0"}
    assert is_worker(worker) and not is_worker(PODS)
    assert placed(worker) == Placement()


def test_options_go_before_the_environment() -> None:
    assert placed(TORCHRUN, nnodes=1) == Placement()


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("gpu07", "gpu07"),
        ("gpu[07-09,12],cpu1", "gpu07"),
        ("a-1,b-2", "a-1"),
        ("rack[3,5]-node1", "rack3-node1"),
    ],
)
def test_the_first_host_of_slurms_short_list(names: str, first: str) -> None:
    assert first_host(names) == first
