"""Learns from its first iterations how a script trains: what ends an iteration, what feeds it.

Nothing is switched meanwhile. The events are kept in order and read once, by `loop_of`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from stash.engine import exchange
from stash.engine.batches import first_dimension
from stash.engine.exchange import SwitchableGroup

#: Enough to see a second optimizer that steps at every fifth batch only.
LEAST_STEPS = 6
MOST_STEPS = 64
TORCH_FOLDER = str(Path(torch.__file__).parent)
#: Parts of PyTorch that exchange gradients and parameters on a script's behalf.
WRAPPERS = ("/nn/parallel/", "/autograd/", "/fsdp/", "/_composable/", "/optim/")


@dataclass(frozen=True)
class Event:
    """Something that the loop did: took a batch, called the model, stepped, spoke to others."""

    kind: Literal["batch", "autocast", "model", "step", "exchange", "own"]
    what: Any


@dataclass(frozen=True)
class Loop:
    """How a script trains."""

    optimizer: torch.optim.Optimizer  # whose step ends an iteration
    optimizers: tuple[torch.optim.Optimizer, ...]
    origin: Any | None  # the loader or iterator that feeds it
    per_iteration: int  # batches that one iteration takes from there
    other_loaders: int  # that it takes batches from in every iteration, too
    dtype: str
    samples: int | None  # of an iteration, by the model's own inputs
    exchanges: bool  # whether workers exchange anything in an iteration
    own_collectives: tuple[str, ...]
    shards: bool = False  # whether the model lies in pieces on the workers


class Observer:
    """Collects events until the loop is known."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._watched: list[SwitchableGroup] = []
        self._forward: Any = None

    def watch(self, group: SwitchableGroup) -> None:
        """See who exchanges what over a process group."""
        self._watched.append(group)
        group.watch(self._exchanged)

    def batch_taken(self, origin: Any) -> None:
        """The script took a batch. Evaluation, which runs without gradients, is left alone."""
        if torch.is_grad_enabled():
            self._events.append(Event("batch", origin))

    def autocast_entered(self, dtype: torch.dtype) -> None:
        """The script computes in this precision."""
        if torch.is_grad_enabled():
            self._events.append(Event("autocast", dtype))

    def step_ended(self, optimizer: torch.optim.Optimizer) -> Loop | None:
        """An optimizer stepped; the loop, if it is known and this ends an iteration of it."""
        self._events.append(Event("step", optimizer))
        if self._forward is None and not any(event.kind == "batch" for event in self._events):
            self._forward = register_module_forward_pre_hook(self._model_called)
        steps = Counter(id(event.what) for event in self._events if event.kind == "step")
        total = sum(steps.values())
        if total < LEAST_STEPS or (min(steps.values()) < 2 and total < MOST_STEPS):
            return None
        loop = loop_of(self._events)
        if optimizer is not loop.optimizer:
            return None
        self.close()
        return loop

    def close(self) -> None:
        """Stop watching."""
        for group in self._watched:
            group.watch(None)
        if self._forward is not None:
            self._forward.remove()
        self._events = []

    def _model_called(self, module: torch.nn.Module, inputs: Any) -> None:
        if torch.is_grad_enabled():
            self._events.append(Event("model", (module, first_dimension(inputs))))

    def _exchanged(self, name: str) -> None:
        """A collective passes through a group: on whose behalf?"""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == exchange.__file__:
            frame = frame.f_back  # to who called the group's own method
        if frame is None or not frame.f_code.co_filename.endswith("distributed_c10d.py"):
            self._events.append(Event("exchange", name))  # DDP's reducer calls from C++
            return
        while frame is not None and frame.f_code.co_filename.startswith(TORCH_FOLDER):
            if any(part in frame.f_code.co_filename for part in WRAPPERS):
                self._events.append(Event("exchange", name))
                return
            frame = frame.f_back
        where = "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        self._events.append(Event("own", f"{name} ({where})"))


def loop_of(events: Sequence[Event]) -> Loop:
    """What the events of several iterations tell."""
    steps = Counter(id(event.what) for event in events if event.kind == "step")
    optimizers = {id(event.what): event.what for event in events if event.kind == "step"}
    # The rarest ends an iteration; among equals the one that comes last (a generator steps after
    # its critic, a wrapper after what it wraps).
    regular = [key for key in steps if steps[key] > 1] or list(steps)
    closing = optimizers[min(reversed(regular), key=lambda key: steps[key])]
    iterations = list(_iterations(events, closing))[1:]  # the first one may hold preparations
    taken = [Counter(_key(e.what) for e in one if e.kind == "batch") for one in iterations]
    often = Counter(key for one in taken for key in one)
    steady = [key for key, count in often.items() if 2 * count >= len(iterations)]
    main = max(steady, key=lambda key: often[key], default=None)
    origins = {_key(e.what): e.what for e in events if e.kind == "batch"}
    counts = Counter(one[main] for one in taken if one[main]) if main is not None else Counter()
    return Loop(
        optimizer=closing,
        optimizers=tuple(optimizers.values()),
        origin=None if main is None else origins[main],
        per_iteration=counts.most_common(1)[0][0] if counts else 1,
        other_loaders=max(0, len(steady) - 1),
        dtype=_dtype(closing, [e.what for one in iterations for e in one if e.kind == "autocast"]),
        samples=_samples(iterations[-1]) if iterations else None,
        exchanges=any(e.kind in ("exchange", "own") for one in iterations for e in one),
        own_collectives=tuple(
            dict.fromkeys(e.what for one in iterations for e in one if e.kind == "own")
        ),
        shards=any(
            e.kind == "exchange" and e.what.startswith("reduce_scatter")
            for one in iterations
            for e in one
        ),
    )


def _iterations(events: Iterable[Event], closing: object) -> Iterable[list[Event]]:
    one: list[Event] = []
    for event in events:
        one.append(event)
        if event.kind == "step" and event.what is closing:
            yield one
            one = []


def _key(origin: Any) -> int:
    """The same for a loader that is built anew over the same data set."""
    return id(getattr(origin, "dataset", origin))


def _dtype(optimizer: torch.optim.Optimizer, autocast: Sequence[torch.dtype]) -> str:
    """In the words of `--dtype`: what autocast computes in, else what the weights are."""
    weights = {p.dtype for group in optimizer.param_groups for p in group["params"]}
    if torch.float16 in autocast or torch.float16 in weights:
        return "amp"
    return "bf16" if torch.bfloat16 in autocast or torch.bfloat16 in weights else "fp32"


def _samples(iteration: Iterable[Event]) -> int | None:
    """Samples of an iteration: all calls of the model that is called first."""
    calls = [event.what for event in iteration if event.kind == "model"]
    sizes = [size for module, size in calls if module is calls[0][0]]
    return None if not sizes or None in sizes else sum(sizes)
