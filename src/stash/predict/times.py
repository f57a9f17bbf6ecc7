"""The time of an iteration: layers, messages and the overlap of the two, for many at once.

The recurrence: a message starts when its gradients are ready and the one before it has arrived;
the iteration ends when both the backward pass and the last message have. Changes when the model of
overlap does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from stash.predict.communication import Links, Message, all_reduce_seconds
from stash.predict.compute import LayerSeconds
from stash.predict.constants import Constants
from stash.predict.facts import Array


@dataclass(frozen=True, eq=False)
class IterationSeconds:
    """Predicted seconds per iteration, one value a configuration."""

    alone: Array  # one worker
    unsynced: Array  # all workers, no exchange
    together: Array  # all workers, gradients exchanged


def iteration_seconds(
    layers: LayerSeconds,
    sent: Sequence[Message],
    gpus_per_node: Array,
    nodes: Array,
    links: Links,
    constants: Constants,
    *,
    bytes_per_element: float = 4.0,
    overlap: bool = True,
) -> IterationSeconds:
    """What one iteration takes alone, beside others, and together with them."""
    alone = layers.whole
    unsynced = alone * beside(gpus_per_node * nodes, gpus_per_node, constants)
    backward = layers.backward.sum(1)
    ready = ready_seconds(layers, sent) if overlap else np.repeat(backward[:, None], len(sent), 1)
    sizes = np.array([message.elements * bytes_per_element for message in sent])
    exposed = exposed_seconds(ready, sizes, backward, gpus_per_node, nodes, links, constants)
    return IterationSeconds(alone, unsynced, unsynced + exposed)


def ready_seconds(layers: LayerSeconds, sent: Sequence[Message]) -> Array:
    """When each message can start, from the start of the backward pass: [configurations, sent]."""
    # Gradients become ready from the last layer to the first.
    done = np.cumsum(layers.backward[:, ::-1], axis=1)[:, ::-1]
    ready: Array = done[:, [message.last_layer for message in sent]]
    return ready


def exposed_seconds(
    ready: Array,
    sizes: Array,
    backward: Array,
    gpus_per_node: Array,
    nodes: Array,
    links: Links,
    constants: Constants,
) -> Array:
    """What the exchange adds to an iteration; sizes in bytes, a row a configuration or one for all.

    The recurrence without its loop: the last message ends when the slowest chain does, which begins
    with some message as it becomes ready and goes on with all that follow it.
    """

    def column(values: Array) -> Array:
        return values[:, None]

    rows = links.as_columns()
    seconds = all_reduce_seconds(
        np.broadcast_to(sizes, ready.shape), column(gpus_per_node), column(nodes), rows, constants
    )
    seconds = np.where(sizes > 0, seconds, 0.0)
    and_all_after = np.cumsum(seconds[:, ::-1], axis=1)[:, ::-1]
    left = np.maximum(0.0, (ready + and_all_after).max(1) - backward)
    hidden = and_all_after[:, 0] - left
    exposed: Array = left + constants.contention * hidden
    return np.where(gpus_per_node * nodes > 1, exposed, 0.0)


def beside(workers: Array, gpus_per_node: Array, constants: Constants) -> Array:
    """The slowest of many workers is slower than one; workers of a node share its host.

    Iterations of workers scatter; a gang waits for the last of them, which is about the expected
    largest of so many normal values.
    """
    slowest = np.where(workers > 1, ndtri((workers - 0.375) / (workers + 0.25)), 0.0)
    factor: Array = 1 + constants.straggling * slowest + constants.sharing * (gpus_per_node - 1)
    return factor
