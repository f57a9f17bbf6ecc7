"""What the first iterations of a script tell about its loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from stash.engine.limits import checks_of, possible_steps
from stash.engine.observe import LEAST_STEPS, Event, Loop, Observer, loop_of
from stash.errors import StashError
from stash.results.steps import DEFAULT_STEPS


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)


def events(*names: str, times: int = 3, **what: Any) -> list[Event]:
    """`batch:a` and the like, by the names of what they are about."""
    one = [(kind, what.get(name, name)) for kind, _, name in (n.partition(":") for n in names)]
    return [Event(kind, of) for kind, of in one * times]  # type: ignore[arg-type]


SGD, CRITIC = optimizer(), optimizer()
TRAIN, SECOND, VALIDATION = ["train"], ["second"], ["validation"]
NAMES = {"sgd": SGD, "critic": CRITIC, "train": TRAIN, "second": SECOND, "val": VALIDATION}


def seen(*names: str, times: int = 3) -> Loop:
    return loop_of(events(*names, times=times, **NAMES))


def test_one_batch_and_one_step() -> None:
    loop = seen("batch:train", "exchange:allreduce", "step:sgd")
    assert loop.optimizer is SGD and loop.origin is TRAIN
    assert (loop.per_iteration, loop.other_loaders, loop.dtype) == (1, 0, "fp32")
    assert loop.exchanges and loop.own_collectives == ()


def test_gradient_accumulation_is_one_iteration() -> None:
    assert seen("batch:train", "batch:train", "batch:train", "step:sgd").per_iteration == 3


def test_a_batch_fetched_ahead_does_not_count_twice() -> None:
    ahead = events("batch:train", times=1, **NAMES)
    loop = loop_of(ahead + events("batch:train", "step:sgd", **NAMES))
    assert loop.per_iteration == 1


def test_the_generator_ends_an_iteration_and_not_its_critic() -> None:
    loop = seen("batch:train", "step:critic", "step:sgd")
    assert loop.optimizer is SGD and set(loop.optimizers) == {SGD, CRITIC}
    assert loop.per_iteration == 1


def test_the_rarest_optimizer_ends_an_iteration() -> None:
    rounds = ["batch:train", "step:critic"] * 5
    loop = seen(*rounds, "step:sgd")
    assert loop.optimizer is SGD and loop.per_iteration == 5


def test_an_optimizer_that_stepped_once_ends_no_iteration() -> None:
    once = events("step:critic", times=1, **NAMES)
    loop = loop_of(once + events("batch:train", "step:sgd", times=9, **NAMES))
    assert loop.optimizer is SGD and loop.origin is TRAIN


def test_two_loaders_side_by_side_are_both_seen() -> None:
    loop = seen("batch:train", "batch:second", "step:sgd")
    assert loop.origin is TRAIN and loop.other_loaders == 1
    assert {check.name for check in checks_of(loop, 2)} >= {"other loaders"}


def test_a_loader_that_is_used_now_and_then_is_an_evaluation() -> None:
    usual = events("batch:train", "step:sgd", times=5, **NAMES)
    loop = loop_of(usual + events("batch:val", "batch:train", "step:sgd", times=1, **NAMES))
    assert loop.origin is TRAIN and loop.other_loaders == 0


def test_what_happens_before_the_first_step_is_preparation() -> None:
    before = events("own:barrier (train.py:3)", "batch:val", times=1, **NAMES)
    loop = loop_of(before + events("batch:train", "step:sgd", **NAMES))
    assert loop.origin is TRAIN and not loop.exchanges and loop.own_collectives == ()


def test_own_collectives_are_named_once() -> None:
    loop = seen("batch:train", "own:allreduce (train.py:7)", "step:sgd")
    assert loop.own_collectives == ("allreduce (train.py:7)",) and loop.exchanges
    (check,) = checks_of(loop, 2)
    assert check.name == "own collectives" and "train.py:7" in check.message


@pytest.mark.parametrize(
    ("dtype", "word"), [(torch.bfloat16, "bf16"), (torch.float16, "amp"), (None, "fp32")]
)
def test_precision_is_what_autocast_computes_in(dtype: torch.dtype | None, word: str) -> None:
    one = [Event("batch", TRAIN), Event("step", SGD)]
    if dtype is not None:
        one.insert(1, Event("autocast", dtype))
    assert loop_of(one * 3).dtype == word


def test_samples_are_those_of_the_models_own_inputs() -> None:
    outer, inner = nn.Linear(1, 1), nn.Linear(1, 1)
    one = [Event("model", (outer, 4)), Event("model", (inner, 4))] * 2 + [Event("step", SGD)]
    loop = loop_of(one * 3)
    assert loop.origin is None and loop.samples == 8


def test_evaluation_without_gradients_is_not_seen_and_observing_ends_with_an_iteration() -> None:
    observer = Observer()
    steps = 0
    while steps < 2 * LEAST_STEPS:
        with torch.no_grad():
            observer.batch_taken(VALIDATION)
        observer.batch_taken(TRAIN)
        assert observer.step_ended(CRITIC) is None
        loop = observer.step_ended(SGD)
        steps += 2
        if loop is not None:
            break
    assert loop is not None and loop.optimizer is SGD and loop.origin is TRAIN
    assert steps == LEAST_STEPS


def test_a_loop_without_a_feed_keeps_its_interconnect() -> None:
    loop = seen("exchange:allreduce", "step:sgd")
    assert possible_steps(loop, DEFAULT_STEPS, 2) == ("solo", "unsynced", "node")
    (check,) = checks_of(loop, 2)
    assert check.name == "feed" and "stash.feed" in check.next


def test_a_loop_without_exchange_keeps_its_prep() -> None:
    loop = seen("batch:train", "step:sgd")
    assert possible_steps(loop, DEFAULT_STEPS, 2) == ("node", "warm", "cold")
    (check,) = checks_of(loop, 2)
    assert check.name == "exchange"
    assert checks_of(loop, 1) == ()


def test_a_loop_of_which_nothing_can_be_told_is_refused_with_what_to_do() -> None:
    with pytest.raises(StashError, match=r"no torch DataLoader.*stash\.feed"):
        possible_steps(seen("step:sgd"), ("node", "warm", "cold"), 1)
    with pytest.raises(StashError, match="DistributedDataParallel"):
        possible_steps(seen("step:sgd"), DEFAULT_STEPS, 2)
