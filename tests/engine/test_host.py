"""Scripts run on the engine as they run without it, and what is told when they do not work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.hosting import LOOP, run_hosted, write
from stash.engine import host
from stash.results.recording import End, Facts, Round

pytestmark = pytest.mark.gang

#: What a script can see of how it was started; then, with the engine, it trains.
SCRIPT = """
import json, os, sys
seen = {
    "name": __name__, "file": __file__, "package": __package__, "argv": sys.argv,
    "folder": os.getcwd(), "first of path": sys.path[0],
    "folder in path": os.getcwd() in sys.path,
    "is main": sys.modules["__main__"].__dict__ is globals(),
}
with open(os.environ["SEEN"], "w") as file:
    json.dump(seen, file)
if "PLAIN" in os.environ:
    sys.exit()
"""


def seen_plainly(folder: Path, *arguments: str) -> dict[str, Any]:
    """What the script sees when Python itself runs it."""
    environment = {**os.environ, "SEEN": str(folder / "seen-plainly"), "PLAIN": "1"}
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True)
    loaded: dict[str, Any] = json.loads((folder / "seen-plainly").read_text())
    return loaded


ARGUMENTS = ("--plan", "mine", "-m", "--", "-x", "a b", "--epochs=3")


def test_a_script_sees_what_it_would_see_without_the_engine(tmp_path: Path) -> None:
    write(tmp_path, SCRIPT, LOOP, "list(iterate())", name="below/train_me.py")
    arguments = ("below/train_me.py", *ARGUMENTS)
    hosted = run_hosted(tmp_path, *arguments)
    assert hosted.code == 0, hosted.log
    seen = json.loads((tmp_path / "seen-hosted").read_text())
    plainly = seen_plainly(tmp_path, *arguments)
    assert seen["argv"] == ["below/train_me.py", *ARGUMENTS]
    assert seen == plainly


def test_a_module_sees_what_it_would_see_without_the_engine(tmp_path: Path) -> None:
    write(tmp_path, "", name="mine/__init__.py")
    write(tmp_path, SCRIPT, LOOP, "list(iterate())", name="mine/train_me.py")
    arguments = ("-m", "mine.train_me", *ARGUMENTS)
    hosted = run_hosted(tmp_path, *arguments)
    assert hosted.code == 0, hosted.log
    assert json.loads((tmp_path / "seen-hosted").read_text()) == seen_plainly(tmp_path, *arguments)


def test_a_whole_measurement_runs_under_a_plain_loop_of_one_worker(tmp_path: Path) -> None:
    rates = """
    seen = set()
    start = [p.clone() for p in model.parameters()]
    for loss in iterate():
        seen.add(tuple(group["lr"] for group in optimizer.param_groups))
        same = all(torch.equal(a, b) for a, b in zip(start, model.parameters()))
        with open("rates", "w") as file:
            file.write(f"{sorted(seen)} {same}")
    """
    script = write(tmp_path, LOOP, rates)
    hosted = run_hosted(tmp_path, str(script), steps=("node", "warm", "cold"), max_rounds=2)
    assert hosted.code == 0, hosted.log
    # The rates are the user's own after every step, and were zero within it.
    assert (tmp_path / "rates").read_text() == "[(0.5, 0.1)] True"
    kinds = [type(event) for event in hosted.events]
    assert kinds.count(Facts) == 1 and kinds.count(Round) == 2 and kinds[-1] is End
    rounds = [event for event in hosted.events if isinstance(event, Round)]
    assert all({b.step for b in one.blocks} == {"node", "warm", "cold"} for one in rounds)


def test_a_script_may_restart_its_epochs_as_often_as_it_likes(tmp_path: Path) -> None:
    """Fed batches do not end; a script that leaves its loop after a few must not mind."""
    script = write(tmp_path, LOOP, "while True:\n    list(iterate(3))")
    assert run_hosted(tmp_path, str(script)).code == 0


def test_a_stream_shorter_than_a_block_is_measured_too(tmp_path: Path) -> None:
    stream = """
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([(torch.zeros(4), torch.zeros(1))] * 10)

    loader = DataLoader(Stream(), batch_size=8, num_workers=1)
    list(iterate())
    """
    hosted = run_hosted(tmp_path, str(write(tmp_path, LOOP, stream)), steps=("node", "warm"))
    assert hosted.code == 0, hosted.log
    facts = next(event for event in hosted.events if isinstance(event, Facts))
    assert "window" in {check.name for check in facts.checks if check.status == "warn"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("for x, y in loader: model(x)", "ended before the measurement was done"),
        ("list(iterate(4))", "ended before the measurement was done"),
        ("import sys; next(iterate()); sys.exit('no licence')", "sys.exit('no licence')"),
        ("import sys; sys.exit(0)", "sys.exit(0)"),
        ("next(iterate()); raise KeyError('label')", "KeyError: 'label'"),
        ("model(1)", "TypeError"),
        (
            "while True:\n    model.weight.grad = torch.ones(1, 4); optimizer.step()",
            "from no torch DataLoader",
        ),
        ("for x, y in loader: model(x)", "without a single optimizer step"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
    ids=lambda text: text.split(";")[0][:30].replace(" ", "_"),
)
def test_a_script_that_cannot_be_measured_is_told_by_what_it_did(
    tmp_path: Path, body: str, told: str
) -> None:
    hosted = run_hosted(tmp_path, str(write(tmp_path, LOOP, "print('about to')", body)))
    assert hosted.code == 1
    assert told in hosted.error["quoting"] and hosted.error["rank"] == 0
    assert "about to" in hosted.log


def test_an_error_in_the_script_shows_its_own_lines(tmp_path: Path) -> None:
    script = write(tmp_path, LOOP, "def mine():\n    raise ValueError('odd')", "mine()")
    hosted = run_hosted(tmp_path, str(script))
    assert "train_me.py" in hosted.log and "in mine" in hosted.log
    assert "train_me.py" in hosted.error["traceback"]


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("def mine():\n    raise ValueError(f'bad {token}')\nmine()", "ValueError at train_me.py:"),
        ("torch.ones(1).view(token)", "TypeError at train_me.py:"),
        ("import sys; sys.exit(f'no licence for {token}')", "sys.exit(...)"),
        ("import sys; sys.exit(4)", "sys.exit(4)"),
    ],
)
def test_what_a_script_says_itself_is_quoted_and_kept_out_of_documents(
    tmp_path: Path, body: str, kept: str
) -> None:
    hosted = run_hosted(tmp_path, str(write(tmp_path, LOOP, "token = 's3cr3t'", body)))
    assert hosted.code == 1
    assert kept in hosted.error["message"] and "s3cr3t" not in hosted.error["message"]


def test_a_script_that_is_not_there_is_told(tmp_path: Path) -> None:
    hosted = run_hosted(tmp_path, str(tmp_path / "missing.py"))
    assert hosted.code == 1 and "missing.py" in hosted.error["quoting"]


def test_loader_workers_that_the_script_left_behind_are_ended(tmp_path: Path) -> None:
    script = write(tmp_path, LOOP, "kept = iter(loader); next(kept); list(iterate())")
    assert run_hosted(tmp_path, str(script)).code == 0


@pytest.mark.parametrize(
    ("usable", "given"),
    [
        (4, {2, 3}),  # cores of our own: the second of two workers gets the second half
        (2, None),  # a quota of two cores' time on four cores: other containers have one, too
    ],
)
def test_workers_are_pinned_to_cores_and_not_under_a_quota(
    usable: int, given: set[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = []
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 2, 3})
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: pinned.append(set(cores)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    host._pin(usable)
    assert pinned == ([] if given is None else [given])
