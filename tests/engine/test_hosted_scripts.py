"""Odd but honest scripts, one process each: what the engine makes of them."""

from __future__ import annotations

import multiprocessing
import socket
from pathlib import Path
from typing import Any

import pytest

from launch.hosting import LOOP, run_hosted, write
from stash.results.recording import End, Facts, Round

pytestmark = pytest.mark.gang


def facts_of(hosted: Any) -> Facts:
    assert hosted.code == 0, hosted.log
    assert isinstance(hosted.events[-1], End)
    return next(event for event in hosted.events if isinstance(event, Facts))


def test_nothing_of_the_script_runs_when_the_measurement_is_done(tmp_path: Path) -> None:
    """Neither a handler that catches everything nor one that always saves."""
    ends = """
    import atexit
    atexit.register(lambda: open("exit", "w").close())
    try:
        while True:
            try:
                list(iterate())
            except BaseException:
                open("caught", "w").close()
    finally:
        torch.save(model.state_dict(), "checkpoint.pt")
    """
    (tmp_path / "checkpoint.pt").write_text("of last week")
    facts_of(run_hosted(tmp_path, str(write(tmp_path, LOOP, ends))))
    assert (tmp_path / "checkpoint.pt").read_text() == "of last week"
    assert not (tmp_path / "exit").exists() and not (tmp_path / "caught").exists()


def test_two_optimizers_are_one_iteration(tmp_path: Path) -> None:
    gan = """
    critic = nn.Linear(1, 1)
    other = torch.optim.Adam(critic.parameters())
    while True:
        for x, y in loader:
            other.zero_grad()
            critic(model(x).detach()).sum().backward()
            other.step()
            optimizer.zero_grad()
            critic(model(x)).sum().backward()
            optimizer.step()
    """
    workload = facts_of(run_hosted(tmp_path, str(write(tmp_path, LOOP, gan)))).workload
    assert workload.optimizer == "SGD" and workload.batch_per_worker == 8
    assert workload.parameters == 5 + 2


def test_a_loader_built_anew_for_every_epoch_stays_switched(tmp_path: Path) -> None:
    anew = """
    while True:
        loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1)
        list(iterate(3))
    """
    facts = facts_of(run_hosted(tmp_path, str(write(tmp_path, LOOP, anew))))
    assert facts.workload.samples == 64
    assert "evaluation" not in {check.name for check in facts.checks}


def test_an_evaluation_in_between_is_left_alone_and_told(tmp_path: Path) -> None:
    evaluates = """
    held_out = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2)
    for number, loss in enumerate(iterate()):
        if number % 5 == 4:
            with torch.no_grad():
                assert [x.tolist() for (x,) in held_out] == [[0, 1], [2, 3], [4, 5]]
    """
    hosted = run_hosted(tmp_path, str(write(tmp_path, LOOP, evaluates)))
    assert facts_of(hosted).workload.samples == 64
    assert "evaluation" in {check.name for check in hosted.events[-1].checks}


def test_batches_through_stash_feed_are_switched(tmp_path: Path) -> None:
    own = """
    import stash

    def batches():
        while True:
            yield torch.randn(6, 4), torch.randn(6, 1)

    loader = stash.feed(batches())
    list(iterate())
    """
    hosted = run_hosted(tmp_path, str(write(tmp_path, LOOP, own)))
    facts = facts_of(hosted)
    assert facts.workload.batch_per_worker == 6 and facts.workload.samples is None
    rounds = [event for event in hosted.events if isinstance(event, Round)]
    assert {block.step for block in rounds[0].blocks} == {"node", "warm"}


def test_batches_that_the_script_writes_into_are_told(tmp_path: Path) -> None:
    writes = """
    while True:
        for x, y in loader:
            x.div_(2)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    """
    hosted = run_hosted(tmp_path, str(write(tmp_path, LOOP, writes)))
    facts_of(hosted)
    assert "batches in place" in {check.name for check in hosted.events[-1].checks}


def test_a_compiled_model_is_measured(tmp_path: Path) -> None:
    compiled = "model = torch.compile(model, backend='eager')\nlist(iterate())"
    facts_of(run_hosted(tmp_path, str(write(tmp_path, LOOP, compiled))))


def test_trackers_are_off_unless_they_are_kept(tmp_path: Path) -> None:
    tracks = """
    import json, os
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter("runs/mine")
    for number, loss in enumerate(iterate()):
        writer.add_scalar("loss", loss, number)
        writer.flush()
        with open("wandb", "w") as file:
            file.write(os.environ.get("WANDB_MODE", "on"))
    """
    pytest.importorskip("tensorboard", reason="pip install '.[examples]' brings it")
    script = str(write(tmp_path, LOOP, tracks))
    facts_of(run_hosted(tmp_path, script, keep_tracking=True))
    assert list(tmp_path.glob("runs/mine/events*"))
    assert (tmp_path / "wandb").read_text() == "on"
    for events in tmp_path.glob("runs/mine/events*"):
        events.unlink()
    (tmp_path / "recording.jsonl").unlink()
    facts_of(run_hosted(tmp_path, script))
    assert not list(tmp_path.glob("runs/mine/events*"))
    assert (tmp_path / "wandb").read_text() == "disabled"


def _meet(rank: int, port: int, answer: Any) -> None:
    import os

    os.environ.update(
        RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    from stash.engine.gang import LooseGang, gather_gang

    gang = gather_gang()
    gang.barrier()
    told = (gang.gather([rank, 2.5]), gang.follow(7 + rank))
    answer.put((rank, isinstance(gang, LooseGang), *told))


def test_workers_of_a_script_without_torch_distributed_meet_all_the_same() -> None:
    from torch.distributed import TCPStore

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    answer = context.Queue()
    workers = [context.Process(target=_meet, args=(rank, port, answer)) for rank in range(2)]
    for worker in workers:
        worker.start()
    told = sorted(answer.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join(30)
    everyone = [[0.0, 2.5], [1.0, 2.5]]
    assert told == [(0, True, everyone, 7), (1, True, everyone, 7)]
    del store
