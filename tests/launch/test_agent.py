"""How workers are started, and what is noted of their end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.agents import output_of, task_of
from launch.running import until
from stash.launch import agent, supervise
from stash.launch.agent import ENDED, LOGS, Task
from stash.launch.early import run_agent, starting_agent
from stash.launch.rendezvous import Point, environment_of_all, variables

TELL = """
import json, os, random, sys, time
import numpy, torch
print(json.dumps({
    "host": sys.orig_argv[3],
    "parent": os.getppid(),
    "group": os.getpgid(0) == os.getpid(),
    "torch_threads": torch.get_num_threads(),
    "numpy": float(numpy.random.random()),
    "python": random.random(),
    "path": sys.path[0],
    "main": sys.modules["__main__"].__file__,
    "argv": sys.argv,
    "variables": {k: v for k, v in os.environ.items() if k == "OMP_NUM_THREADS" or "RANK" in k},
}))
time.sleep(600)
"""
#: Worker 0 waits to be ended; worker 1 is told what to do by the text that follows.
TWO = "import os, signal, sys, time\nif os.environ['RANK'] == '0': time.sleep(600)\n"
STARTED = (
    "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start();"
)
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("here")
time.sleep(600)
"""


def run(task: Task, folder: Path) -> subprocess.Popen[bytes]:
    process = run_agent(task, folder / "agent.log")
    process.wait(100)
    return process


def told_by(task: Task, number: int = 0) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(output_of(task, number).splitlines()[0])
    return known


def say_all(process: subprocess.Popen[bytes], task: Task) -> int:
    """Until every worker has said something; the agent, which has been ended then."""
    logs = [Path(task.folder) / LOGS / str(n) / "stdout.log" for n in range(len(task.workers))]
    assert until(lambda: all(log.exists() and log.read_text() for log in logs), 60)
    process.terminate()
    assert process.wait(30) == 1
    return process.pid


pytestmark = pytest.mark.gang


def test_workers_are_forks_that_differ_where_new_interpreters_would(tmp_path: Path) -> None:
    """Same threads, path, arguments and groups; random numbers of their own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    forked = task_of(tmp_path / "forked", TELL, environment, workers=2)
    parent = say_all(run_agent(forked, tmp_path / "forked.log"), forked)
    fresh = task_of(tmp_path / "fresh", TELL, environment, workers=2)
    with starting_agent({**environment, "ONLY": "of the agent"}):
        other = say_all(run_agent(fresh, tmp_path / "fresh.log"), fresh)
    for number in (0, 1):
        one, two = told_by(forked, number), told_by(fresh, number)
        assert one.pop("host") == "stash.launch.agent" and two.pop("host") == "stash.engine.host"
        assert one.pop("parent") == parent and two.pop("parent") == other
        assert Path(one.pop("path")).name == "forked" and Path(two.pop("path")).name == "fresh"
        for told, folder in ((one, "forked"), (two, "fresh")):
            script = str(tmp_path / folder / "script.py")
            assert told.pop("main") == script and told.pop("argv") == [script]
            del told["numpy"], told["python"]
        assert one == two and one["group"] and one["torch_threads"] == 1
        assert one["variables"]["RANK"] == str(number)
    drawn = [told_by(forked, number)[kind] for number in (0, 1) for kind in ("numpy", "python")]
    assert len(set(drawn)) == 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is forked elsewhere")
def test_nothing_is_forked_where_it_would_not_be_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(agent, "_has_one_thread", lambda: True)
    monkeypatch.setattr(agent, "DEVICES", tmp_path)
    own = {"A": "1"}
    assert agent._may_fork(own, {**own, "GLOO_SOCKET_IFNAME": "eth0"})
    assert not agent._may_fork(own, {"A": "2"})
    assert not agent._may_fork(own, {})
    monkeypatch.setattr(agent, "_has_one_thread", lambda: False)
    assert not agent._may_fork(own, own)
    monkeypatch.setattr(agent, "_has_one_thread", lambda: True)
    (tmp_path / "nvidia0").touch()
    assert not agent._may_fork(own, own)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is forked elsewhere")
@pytest.mark.parametrize(("more", "one"), [("", True), (STARTED, False)])
def test_threads_that_would_not_survive_a_fork_are_seen(more: str, one: bool) -> None:
    """Those that numpy has, as many as it may use, are not among them."""
    look = "from stash.launch import agent; agent._import(); import numpy;"
    told = {**os.environ, "OMP_NUM_THREADS": "2"}
    found = subprocess.run(
        [sys.executable, "-c", f"{look} {more} print(agent._has_one_thread())"],
        env=told,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(one)


def test_variables_are_those_of_torchrun(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    without = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    found = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", "--redirects", "3", "--log-dir", tmp_path, "env"],
        env=without,
        check=True,
        capture_output=True,
    )
    assert found.returncode == 0
    (log,) = tmp_path.glob("*/attempt_0/1/stdout.log")
    theirs = dict(line.partition("=")[::2] for line in log.read_text().splitlines())
    ours = {
        **environment_of_all(os.environ, 2, None),
        **variables(Point(1, 0, theirs["MASTER_ADDR"], int(theirs["MASTER_PORT"])), 2, 1),
    }
    not_for_scripts = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "_", "SHLVL"}
    by_torchrun = set(theirs) - set(without) - not_for_scripts
    assert len(by_torchrun) > 12 and by_torchrun <= set(ours)
    different = {"TORCHELASTIC_RUN_ID"}  # one of many may be as good as another
    assert {k: ours[k] for k in by_torchrun - different} == {
        k: theirs[k] for k in by_torchrun - different
    }


def test_ranks_go_on_from_node_to_node() -> None:
    told = variables(Point(nodes=3, node=2, host="a", port=7), 4, 1)
    assert (told["RANK"], told["LOCAL_RANK"], told["GROUP_RANK"]) == ("9", "1", "2")
    assert (told["WORLD_SIZE"], told["LOCAL_WORLD_SIZE"]) == ("12", "4")
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("a", "7")


@pytest.mark.parametrize(
    ("does", "first", "killed"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, (1, signal.SIGKILL)),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", 1, None),  # kept rounds are told
        ("os._exit(7)", 7, None),
    ],
)
def test_the_first_worker_that_fails_ends_the_others_and_is_noted(
    does: str, first: int, killed: tuple[int, int] | None, tmp_path: Path
) -> None:
    task = task_of(tmp_path, TWO + does, workers=2)
    assert run(task, tmp_path).returncode == 1
    ended = json.loads((tmp_path / ENDED).read_text())
    assert ended[0] == {"rank": 1, "code": first}
    assert [one["rank"] for one in ended[1:]] == [0]  # by us
    assert supervise._killed_worker(tmp_path) == killed


def test_a_worker_that_was_killed_is_found_behind_one_that_failed_of_it(tmp_path: Path) -> None:
    def noted(*ended: tuple[int, int]) -> tuple[int, int] | None:
        told = [{"rank": rank, "code": code} for rank, code in ended]
        (tmp_path / ENDED).write_text(json.dumps(told))
        return supervise._killed_worker(tmp_path)

    assert noted((0, 1), (1, -9), (2, -15)) == (1, 9)
    assert noted((2, -15), (1, -15)) == (2, 15)  # from outside; then by us
    assert noted((0, 1), (1, -15)) is None
    assert noted((3, -11)) == (3, 11)
    (tmp_path / ENDED).write_text("[{")
    assert supervise._killed_worker(tmp_path) is None


def test_an_agent_that_is_asked_to_end_ends_workers_that_do_not_listen(tmp_path: Path) -> None:
    task = task_of(tmp_path, DEAF, workers=2)
    say_all(run_agent(task, tmp_path / "agent.log"), task)
