"""How the launcher explains the end of a gang: who failed first, and which words go where."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from stash.engine.heartbeat import Heartbeat
from stash.launch import supervise


def failed(folder: Path, rank: int, message: str, quoting: str) -> None:
    """What a worker leaves behind."""
    error = {"rank": rank, "message": message, "quoting": quoting, "traceback": ""}
    (folder / f"error-{rank}.json").write_text(json.dumps(error))
    log = folder / "logs" / str(rank)
    log.mkdir(parents=True)
    (log / "stderr.log").write_text("--token s3cr3t-of-an-argument\n")
    (log / "stdout.log").write_text("s3cr3t-of-a-print\n")


def test_what_a_script_said_and_wrote_is_shown_and_goes_into_no_document(tmp_path: Path) -> None:
    failed(tmp_path, 0, "KeyError at train.py:7", "KeyError: s3cr3t-of-an-error")
    failure = supervise._explain_exit(tmp_path)
    assert failure.message == "Worker 0 failed: KeyError at train.py:7."
    for secret in ("s3cr3t-of-an-error", "s3cr3t-of-an-argument", "s3cr3t-of-a-print"):
        assert secret in failure.shown


@pytest.mark.parametrize("left", ["123 1.0 node", ""])  # a full disk empties what is written anew
def test_workers_that_had_begun_and_left_no_word_were_started(left: str, tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text("traceback of the agent\n")
    failure = supervise._explain_exit(tmp_path)
    assert failure.message == "The workers could not be started."
    (tmp_path / "heartbeat-0").write_text(left)
    failure = supervise._explain_exit(tmp_path)
    assert failure.message == "A worker ended without a word."
    assert "traceback of the agent" in failure.shown


@pytest.mark.parametrize(("free", "told"), [(0, True), (100_000, True), (1 << 30, False)])
def test_a_full_disk_of_the_run_folder_is_told_by_the_folder_s_name(
    free: int, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=1 << 40, used=(1 << 40) - free, free=free)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    (tmp_path / "heartbeat-0").touch()
    message = supervise._explain_exit(tmp_path).message
    assert message.startswith("A worker ended without a word.")
    assert (f"The disk of {tmp_path} is full" in message) is told


def hangs(folder: Path, rank: int, *wrote: str) -> None:
    """A worker that beat once and, when asked where it is, wrote so."""
    Heartbeat(folder, rank, 60.0).tell("node")
    log = folder / "logs" / str(rank)
    log.mkdir(parents=True)
    lines = ("before", "Stack (most recent call first):", *wrote)
    (log / "stderr.log").write_text("".join(f"{line}\n" for line in lines))


TRAINS = '  File "/home/me/train.py", line 7 in <module>'
HANGS = '  File "/usr/lib/python3/socket.py", line 718 in readinto'
WAITS = (
    '  File "/venv/torch/cuda/__init__.py", line 1083 in synchronize',
    '  File "/venv/stash/engine/gang.py", line 105 in barrier',
    '  File "/venv/torch/distributed/distributed_c10d.py", line 4638 in barrier',
)


@pytest.fixture
def _nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.kill", lambda process, number: None)
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.mark.usefixtures("_nobody_is_asked")
@pytest.mark.parametrize("waits", WAITS)
def test_a_worker_that_waits_for_others_is_not_blamed_for_a_hang(
    waits: str, tmp_path: Path
) -> None:
    hangs(tmp_path, 0, waits, TRAINS)
    assert supervise._explain_hang(tmp_path, 9.0).is_echo
    hangs(tmp_path, 1, HANGS, TRAINS)
    failure = supervise._explain_hang(tmp_path, 9.0)
    assert "Worker 1 hangs in `node`" in failure.message and "readinto" in failure.message


@pytest.mark.usefixtures("_nobody_is_asked")
@pytest.mark.parametrize("said", ["s3cr3t", '  File "/x.py", line 1 in run --token s3cr3t', ""])
def test_what_a_thread_writes_beside_a_stack_goes_into_no_document(
    said: str, tmp_path: Path
) -> None:
    hangs(tmp_path, 0, HANGS, TRAINS, said, "s3cr3t")
    failure = supervise._explain_hang(tmp_path, 9.0)
    assert failure.message.endswith('socket.py", line 718 in readinto\n  ' + TRAINS)
    assert "s3cr3t" not in failure.message


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
        "closed by peer [10.0.0.2]:41234",
        "RuntimeError: [..gloo/transport/tcp/pair.cc] Read error: Connection reset by peer",
        "RuntimeError: [..gloo/transport/tcp/pair.cc] writev [10.0.0.2]: Broken pipe",
        "RuntimeError: [..gloo/transport/tcp/unbound_buffer.cc] Timed out waiting 1800000ms for "
        "recv operation to complete",
        "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, remote process exited or there was "
        "a network error. ncclRemoteError: A call failed possibly due to a network error or a "
        "remote process exiting prematurely.",
        "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the "
        "remote server shutdown or crash?",
    ],
)
def test_a_worker_that_only_saw_another_one_go_is_not_the_cause(said: str, tmp_path: Path) -> None:
    failed(tmp_path, 0, "RuntimeError at train.py:7", said)
    assert supervise._explain_exit(tmp_path).is_echo
    failed(tmp_path, 1, "KeyError at train.py:9", "KeyError: 'label'")
    failure = supervise._explain_exit(tmp_path)
    assert failure.message.startswith("Worker 1") and not failure.is_echo


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: [enforce fail at /gloo/transport/tcp/device.cc] ifa != nullptr. Unable to "
        "find address for: eth9",
        "DistBackendError: NCCL error in: NCCLUtils.cpp, unhandled system error. Error while "
        "creating shared memory segment /dev/shm/nccl-1 (size 9637888)",
        "ValueError: ProcessGroupGloo: unsupported data type",
    ],
)
def test_a_failure_of_the_exchange_itself_is_a_cause(said: str, tmp_path: Path) -> None:
    failed(tmp_path, 0, "RuntimeError at train.py:7", said)
    assert not supervise._explain_exit(tmp_path).is_echo
