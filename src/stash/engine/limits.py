"""What of a script can be switched, and what therefore cannot be told."""

from __future__ import annotations

from collections.abc import Sequence

from stash.engine.observe import Loop
from stash.errors import StashError
from stash.results.recording import Check
from stash.results.steps import STEP_BY_NAME, Step, Who, stalls_of


def possible_steps(
    loop: Loop, asked: Sequence[str], workers: int, nodes: int = 1
) -> tuple[str, ...]:
    """The steps that this loop can run; refuses a loop of which no stall could be told."""
    possible = tuple(
        name
        for name in asked
        if _is_possible(STEP_BY_NAME[name], loop, workers)
        and (nodes == 1 or not loop.shards or _keeps_shards_together(STEP_BY_NAME[name]))
    )
    if not possible or (stalls_of(set(asked)) and not stalls_of(set(possible))):
        raise StashError(
            f"Nothing can be told of this script. {' '.join(_reasons(loop, workers))} "
            f"What to do: {' '.join(_remedies(loop, workers))}"
        )
    return possible


def checks_of(loop: Loop, workers: int, nodes: int = 1) -> tuple[Check, ...]:
    """Every limit in words, with what to do about it."""
    checks = []
    if nodes > 1 and loop.shards:
        checks.append(_warned("sharded model", _SHARDED, _ONE_NODE))
    if loop.origin is None:
        checks.append(_warned("feed", _NO_FEED, _FEED_IT))
    if workers > 1 and not loop.exchanges:
        checks.append(_warned("exchange", _NO_EXCHANGE, _EXCHANGE_IT))
    if loop.own_collectives:
        shown = ", ".join(loop.own_collectives[:5])
        checks.append(
            _warned(
                "own collectives",
                f"The script itself calls {shown}: with exchange off these complete at once, too.",
                "Read `communication` as the exchange of gradients and these together.",
            )
        )
    if loop.other_loaders:
        checks.append(
            _warned(
                "other loaders",
                f"The loop takes batches from {loop.other_loaders} more loader(s), which cannot be "
                "switched: their part of `prep` and `fetch` is in every step.",
                "Read `prep` and `fetch` as those of the first loader alone.",
            )
        )
    return tuple(checks)


def in_place_check() -> Check:
    """Replayed batches are the script's own objects; what is written to them stays."""
    return _warned(
        "batches in place",
        "The script writes into its batches, so replayed ones are not what was recorded: "
        "`prep` may be off where the work depends on values.",
        "Let the script compute into new tensors (x = x / 255, not x.div_(255)).",
    )


def evaluation_check(batches: int) -> Check:
    """An evaluation by the script's own count of iterations falls into somebody's block."""
    return _warned(
        "evaluation",
        f"The script took {batches} batch(es) from other loaders while it was measured: those "
        "iterations hold an evaluation, too.",
        "Switch evaluation off by the script's own flags if a stall is called intermittent.",
    )


def _keeps_shards_together(step: Step) -> bool:
    """A model in pieces on all workers of all nodes cannot be put together by some of them."""
    return step.who is Who.ALL or not step.exchange


def _is_possible(step: Step, loop: Loop, workers: int) -> bool:
    if workers > 1 and not loop.exchanges and not step.exchange:
        return False
    return loop.origin is not None or not (step.feed.is_real or step.name == "staged")


_NO_FEED = (
    "The loop takes its batches from no torch DataLoader, so its feed cannot be switched: "
    "`prep` and `fetch` cannot be told from compute."
)
_FEED_IT = "Wrap what makes the batches: `for batch in stash.feed(batches):` (docs/scripts.md)."
_NO_EXCHANGE = (
    "Workers exchange nothing in an iteration (no DistributedDataParallel), so there is no "
    "`interconnect` to tell."
)
_EXCHANGE_IT = "Wrap the model in DistributedDataParallel, or profile one worker alone."


_SHARDED = (
    "The model lies in pieces on the workers of all nodes, so some of them cannot train alone: "
    "`network`, `scale-out`, `prep` and `fetch` cannot be told."
)
_ONE_NODE = "Profile one node (--nnodes 1) and compare, or shard within each node only."


def _reasons(loop: Loop, workers: int) -> list[str]:
    reasons = [_NO_FEED] if loop.origin is None else []
    if workers == 1:
        return [*reasons, "One worker has nobody to exchange with."]
    return reasons if loop.exchanges else [*reasons, _NO_EXCHANGE]


def _remedies(loop: Loop, workers: int) -> list[str]:
    remedies = [_FEED_IT] if loop.origin is None else []
    return remedies if workers == 1 or loop.exchanges else [*remedies, _EXCHANGE_IT]


def _warned(name: str, message: str, next_step: str) -> Check:
    return Check(name=name, status="warn", message=message, next=next_step)
