"""Delays from outside: they take at least their time, only where they should, and are counted."""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from stash.lab import delays
from stash.lab.account import FOLDER_VARIABLE, Injected, read_accounts
from stash.lab.neighbours import Neighbours

SECONDS = 0.003


def _took(function: Any) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def test_a_wait_never_ends_before_its_deadline() -> None:
    for seconds in (0.0, 0.0002, 0.002):
        deadline = time.perf_counter() + seconds
        delays.wait_until(deadline)
        assert time.perf_counter() >= deadline


def test_a_delay_accounts_for_what_it_really_took() -> None:
    delay = delays.Delay("test", SECONDS)
    outside = sum(_took(delay) for _ in range(5))
    total = delay.account.total
    assert (total.waits, total.asked_seconds) == (5, pytest.approx(5 * SECONDS))
    assert 5 * SECONDS <= total.seconds <= outside


def test_a_delay_of_nothing_is_nothing() -> None:
    delay = delays.Delay("test", 0.0)
    delay()
    assert delay.account.total == Injected()


def test_slow_samples_wait_for_each_and_slow_batches_once() -> None:
    samples, batches = (
        slow(torch.arange(8), SECONDS) for slow in (delays.SlowSamples, delays.SlowBatches)
    )
    for data, waits in ((samples, 8), (batches, 2)):
        read = [batch.tolist() for batch in DataLoader(data, batch_size=4)]
        assert read == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert data.delay.account.total.waits == waits


def test_a_slow_batch_may_be_counted_from_an_earlier_moment() -> None:
    moments = iter([0.0, time.perf_counter()])
    data = delays.SlowBatches(torch.arange(4), 0.6, since=lambda: next(moments))
    assert _took(lambda: data.__getitems__([0, 1])) < 0.5  # long ago
    assert _took(lambda: data.__getitems__([2, 3])) > 0.5


def test_loader_workers_keep_accounts_that_outlive_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    data = delays.SlowBatches(torch.arange(8), SECONDS)
    assert len(list(DataLoader(data, batch_size=2, num_workers=2))) == 4
    assert data.delay.account.total == Injected()  # this process has not waited
    total = read_accounts(tmp_path)["batches"]
    assert (total.waits, total.asked_seconds) == (4, pytest.approx(4 * SECONDS))
    assert total.seconds >= 4 * SECONDS
    assert pickle.loads(pickle.dumps(data)).delay.seconds == SECONDS


def test_only_the_model_that_is_named_is_slow() -> None:
    slow, other = nn.Linear(2, 2), nn.Linear(2, 2)
    installed = delays.slow_forward(SECONDS, model=slow)
    for model in (slow, other, slow):
        model(torch.zeros(1, 2))
    assert installed.delay.account.total.waits == 2
    installed.remove()
    slow(torch.zeros(1, 2))
    assert installed.delay.account.total.waits == 2


@pytest.fixture
def one_worker(tmp_path: Path) -> Iterator[None]:
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(("only_rank", "waits"), [(None, 1), (0, 1), (1, 0)])
def test_whatever_ddp_wraps_is_slow_on_the_worker_that_is_named(
    one_worker: None, only_rank: int | None, waits: int
) -> None:
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    installed = delays.slow_forward(SECONDS, only_rank=only_rank)
    try:
        model(torch.zeros(1, 2))
    finally:
        installed.remove()
    assert installed.delay.account.total.waits == waits  # once, not once a layer


def test_uneven_iterations_are_drawn_alike_by_all_workers(one_worker: None) -> None:
    model = DistributedDataParallel(nn.Linear(2, 2))

    def drawn(seed: int) -> list[float]:
        installed = delays.uneven_iterations(SECONDS, seed)
        times = [0.0]
        try:
            for _ in range(8):
                model(torch.zeros(1, 2))
                times.append(installed.delay.account.total.asked_seconds)
        finally:
            installed.remove()
        return [after - before for before, after in itertools.pairwise(times)]

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert first == again != other
    assert len(set(first)) == 8 and 0.0 < min(first) < SECONDS < max(first) < 2 * SECONDS


def test_a_neighbour_counts_only_while_it_computes(tmp_path: Path) -> None:
    first, second = Neighbours(tmp_path / "marks", 0), Neighbours(tmp_path / "marks", 1)
    first.begin()
    assert not first.any_since_begin()
    second.begin()
    assert first.any_since_begin()  # it computes now
    second.end()
    assert first.any_since_begin()  # it has computed since
    first.begin()
    assert not first.any_since_begin()  # it has not since then


def test_iterations_are_slow_only_beside_a_neighbour(one_worker: None, tmp_path: Path) -> None:
    model = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    installed = delays.slow_neighbours(SECONDS, tmp_path / "marks")
    other = Neighbours(tmp_path / "marks", 7)

    def iteration() -> int:
        model(torch.zeros(1, 2)).sum().backward()
        optimizer.step()
        return installed.delay.account.total.waits

    try:
        assert iteration() == 0
        other.begin()
        assert iteration() == 1
        other.end()
        assert iteration() == 1
    finally:
        installed.remove()


def test_slow_exchanges_follow_one_another_and_keep_their_results(tmp_path: Path) -> None:
    installed = delays.slow_exchange(0.02)
    try:
        store = dist.FileStore(str(tmp_path / "store"), 1)
        group = dist.ProcessGroupGloo(store, 0, 1)
        tensors = [torch.full((4,), float(number)) for number in range(3)]
        began = time.perf_counter()
        handles = [group.allreduce([tensor]) for tensor in tensors]
        assert not handles[2].is_completed()
        (result,) = handles[2].get_future().wait()
        assert time.perf_counter() - began >= 3 * 0.02
        assert all(handle.is_completed() and handle.wait() for handle in handles)
        assert result.tolist() == [2.0] * 4
        assert installed.delay.account.total.waits == 3
    finally:
        installed.remove()
    assert dist.ProcessGroupGloo is torch._C._distributed_c10d.ProcessGroupGloo


@pytest.mark.parametrize(("named", "waits"), [(0, 1), (1, 0), (None, 1)])
def test_only_the_worker_that_is_named_exchanges_slowly(
    named: int | None, waits: int, tmp_path: Path
) -> None:
    installed = delays.slow_exchange(SECONDS, only_rank=named)
    try:
        group = dist.ProcessGroupGloo(dist.FileStore(str(tmp_path / "store"), 1), 0, 1)
        group.allreduce([torch.ones(4)]).wait()
    finally:
        installed.remove()
    assert installed.delay.account.total.waits == waits


def test_delays_need_no_root(one_worker: None) -> None:
    """Nothing in them asks who runs them: they are put in and taken out by any user."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            with tempfile.TemporaryDirectory() as own:  # pytest's folders are closed to others
                for put_in in (
                    lambda: delays.slow_forward(SECONDS),
                    lambda: delays.uneven_iterations(SECONDS, 1),
                    lambda: delays.slow_neighbours(SECONDS, Path(own) / "marks"),
                    lambda: delays.slow_exchange(SECONDS),
                ):
                    put_in().remove()
            data = delays.SlowBatches(torch.arange(2), SECONDS)
            data.__getitems__([0, 1])
            code = 0 if data.delay.account.total.waits == 1 else 2
        finally:
            os._exit(code)  # never back into the tests of the parent
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
