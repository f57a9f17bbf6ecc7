"""`stash share`: the best division of loader workers, held against trying every one."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import stash
from profiles import profile_of
from stash.advise.share import Job, divide, evenly, total
from stash.cli.main import main
from stash.errors import UsageError
from stash.results import store

MOST_JOBS, MOST_LOADER_WORKERS = 4, 12

#: Bound by devices, by loaders, by storage or by nothing for long; of one worker and of several.
KINDS = (
    Job(devices=100, per_loader_worker=10),
    Job(devices=100, per_loader_worker=10, workers=2),
    Job(devices=30, per_loader_worker=25),
    Job(devices=400, per_loader_worker=60, storage=90),
    Job(devices=400, per_loader_worker=13, workers=3),
    Job(devices=35, per_loader_worker=3, workers=4),
    Job(devices=95, per_loader_worker=31, storage=70, workers=2),
    Job(devices=1000, per_loader_worker=0.7),
)


def brute_force(jobs: Sequence[Job], available: int) -> float:
    """The highest total of all divisions that there are."""
    divisions = _divisions(tuple(job.workers for job in jobs), available)
    totals = np.zeros(len(divisions))
    for job, each in zip(jobs, divisions.T, strict=True):
        totals += np.array([job.speed(w) for w in range(available + 1)])[each]
    return float(totals.max())


@cache
def _divisions(workers: tuple[int, ...], available: int) -> np.ndarray:
    """Loader workers of each worker of each job, in every way that fits."""
    choices = itertools.product(*(range(1, available // one + 1) for one in workers))
    fitting = [one for one in choices if np.dot(one, workers) <= available]
    return np.array(fitting)


def greedy(jobs: list[Job], available: int) -> list[int]:
    """Each loader worker where it gains most: right where every step is one loader worker."""
    shares = [1] * len(jobs)
    for _ in range(available - len(jobs)):
        gains = [job.speed(w + 1) - job.speed(w) for job, w in zip(jobs, shares, strict=True)]
        shares[gains.index(max(gains))] += 1
    return shares


def worlds(count: int, *, most_workers: int) -> list[list[Job]]:
    chance = random.Random(0)
    return [
        [
            Job(
                devices=chance.choice((30.0, 100.0, chance.uniform(10, 400))),
                per_loader_worker=chance.choice((10.0, 25.0, chance.uniform(3, 60))),
                storage=chance.choice((float("inf"), chance.uniform(10, 300))),
                workers=chance.randint(1, most_workers),
            )
            for _ in range(chance.randint(1, 4))
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize("count", range(1, MOST_JOBS + 1))
def test_no_division_is_better_in_any_case_of_up_to_four_jobs_and_twelve_loader_workers(
    count: int,
) -> None:
    for jobs in itertools.combinations_with_replacement(KINDS, count):
        for available in range(sum(job.workers for job in jobs), MOST_LOADER_WORKERS + 1):
            shares = divide(jobs, available)
            used = sum(w * job.workers for w, job in zip(shares, jobs, strict=True))
            assert used <= available and min(shares) >= 1
            assert total(jobs, shares) == pytest.approx(brute_force(jobs, available))
            assert total(jobs, shares) >= total(jobs, evenly(jobs, available)) - 1e-9


@pytest.mark.parametrize("most_workers", [1, 2])
def test_no_division_of_jobs_with_drawn_rates_is_better(most_workers: int) -> None:
    for jobs in worlds(12, most_workers=most_workers):
        for available in range(sum(job.workers for job in jobs), MOST_LOADER_WORKERS + 1):
            assert total(jobs, divide(jobs, available)) == pytest.approx(
                brute_force(jobs, available)
            )


def test_with_one_worker_each_it_gains_what_greed_gains() -> None:
    for jobs in worlds(40, most_workers=1):
        best, by_greed = divide(jobs, 40), greedy(jobs, 40)
        assert total(jobs, best) == pytest.approx(total(jobs, by_greed))


def test_equal_jobs_get_equal_shares_and_nobody_gets_what_it_cannot_use() -> None:
    job = Job(devices=100, per_loader_worker=10)
    assert divide([job, job], 12) == [6, 6]
    assert divide([job, job], 64) == [10, 10]


def test_a_job_whose_loaders_do_more_goes_first() -> None:
    slow, fast = (
        Job(devices=160, per_loader_worker=20),
        Job(devices=80, per_loader_worker=80),
    )
    assert divide([slow, fast], 8) == [7, 1]
    assert evenly([slow, fast], 8) == [4, 4]


def test_leftovers_of_an_even_split_go_round() -> None:
    job = Job(devices=100, per_loader_worker=10)
    assert evenly([job, job, job], 8) == [3, 3, 2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Devices take 492 samples/s; a loader worker prepares 80 of them, or 20 in the slow job."""
    store.save(profile_of(), tmp_path, name="a.json")
    slow = profile_of(workload_changes={"loader_workers": 8})
    store.save(slow.model_copy(update={"id": "slow"}), tmp_path, name="slow.json")
    return tmp_path


def test_the_document_tells_the_division_and_its_gain(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["share", "a.json", "slow.json", "--cores", "28", "--folder", str(folder)]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cores_for_training"], found["loader_workers"]) == (4, 24)
    # A fourth for each of a's workers would bring 12 samples/s, a ninth for slow's brings 40.
    assert [job["loader_workers_per_worker"] for job in found["jobs"]] == [3, 9]
    assert [job["even_loader_workers_per_worker"] for job in found["jobs"]] == [6, 6]
    assert found["gain_percent"] == pytest.approx(
        100 * (found["samples_per_second"] / found["even_samples_per_second"] - 1)
    )
    assert found["provenance"] == "predicted" and found["gain_percent"] == pytest.approx(
        14.7, abs=1
    )
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("PREDICTED: ") and "% more than" in shown


def test_the_first_epoch_is_bounded_by_storage(folder: Path) -> None:
    later = stash.share(folder / "a.json", cores=64)
    first = stash.share(folder / "a.json", cores=64, first_epoch=True)
    assert first.samples_per_second == pytest.approx(256, rel=0.01)
    assert later.samples_per_second > 400


@pytest.mark.parametrize(
    ("changes", "cores", "words"),
    [
        ({}, 3, "3 cores are too few for these jobs: training keeps 2 busy"),
        ({"nodes": 2}, 64, "is of several nodes"),
    ],
)
def test_what_cannot_be_shared_is_said(changes: dict[str, int], cores: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        stash.share(profile_of(machine_changes=changes), cores=cores)


def test_a_profile_without_rates_says_what_to_measure() -> None:
    without = profile_of(facts_changes={"preprocessing": None, "storage": None})
    with pytest.raises(UsageError, match="--steps node,warm"):
        stash.share(without, cores=8)
    with pytest.raises(UsageError, match="takes the profiles of the jobs"):
        stash.share(cores=8)


def test_a_first_epoch_without_storage_rate_says_what_to_measure() -> None:
    without = profile_of(facts_changes={"storage": None})
    with pytest.raises(UsageError, match="what its storage sustains"):
        stash.share(without, cores=8, first_epoch=True)
