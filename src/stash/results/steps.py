"""The method as two tables: steps (ways to run one iteration) and stalls (their differences).

Words and meaning follow docs/design.md, section 2. A stall is a linear combination of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Who(str, Enum):
    """Which workers run an iteration of a step."""

    FIRST = "first"  # one worker; the others wait without spinning
    ALL = "all"  # every worker of the node


class Feed(str, Enum):
    """Where batches come from."""

    REPLAY = "replay"  # recorded batches, already on the device
    STAGED = "staged"  # the same, in pinned host memory
    WARM = "warm"  # real data, page cache full
    COLD = "cold"  # real data, page cache empty

    @property
    def is_real(self) -> bool:
        """Whether the data loader itself works for this feed."""
        return self in (Feed.WARM, Feed.COLD)


@dataclass(frozen=True)
class Step:
    """One way to run the same iteration."""

    name: str
    who: Who
    feed: Feed
    exchange: bool  # whether gradients are exchanged
    meaning: str


@dataclass(frozen=True)
class Stall:
    """The extra time of some steps over others, in seconds per iteration."""

    name: str
    terms: tuple[tuple[int, str], ...]  # (sign, step)
    percent_of: str  # the step that the paper's percentage is based on
    part_of: str | None
    meaning: str

    @property
    def steps(self) -> frozenset[str]:
        """The steps that must be measured for this stall to exist."""
        return frozenset(step for _, step in self.terms)


STEPS: tuple[Step, ...] = (
    #    name        who        feed         exchange
    Step("solo", Who.FIRST, Feed.REPLAY, False, "one worker alone, data on the device"),
    Step("unsynced", Who.ALL, Feed.REPLAY, False, "all workers, gradients not exchanged"),
    Step("node", Who.ALL, Feed.REPLAY, True, "all workers, gradients exchanged"),
    Step("staged", Who.ALL, Feed.STAGED, True, "as node, data copied from pinned host memory"),
    Step("warm", Who.ALL, Feed.WARM, True, "as node, real data from a full page cache"),
    Step("cold", Who.ALL, Feed.COLD, True, "as node, real data from an empty page cache"),
    Step("again", Who.ALL, Feed.REPLAY, True, "node once more: its difference to node is noise"),
)

STALLS: tuple[Stall, ...] = (
    Stall(
        "interconnect",
        ((+1, "node"), (-1, "solo")),
        "solo",
        None,
        "what training on all workers of the machine costs over one",
    ),
    Stall(
        "contention",
        ((+1, "unsynced"), (-1, "solo")),
        "solo",
        "interconnect",
        "what sharing the machine costs (memory, power, host)",
    ),
    Stall(
        "communication",
        ((+1, "node"), (-1, "unsynced")),
        "solo",
        "interconnect",
        "what exchanging gradients costs after overlap",
    ),
    Stall(
        "prep",
        ((+1, "warm"), (-1, "node")),
        "warm",
        None,
        "preprocessing that the devices wait for",
    ),
    Stall(
        "copy",
        ((+1, "staged"), (-1, "node")),
        "warm",
        "prep",
        "the part of it that is host-to-device copy",
    ),
    Stall(
        "fetch",
        ((+1, "cold"), (-1, "warm")),
        "cold",
        None,
        "storage that the devices wait for",
    ),
    Stall(
        "noise",
        ((+1, "again"), (-1, "node")),
        "node",
        None,
        "one step against itself: what this machine shows where there is nothing",
    ),
)

#: Steps of several nodes: predicted today, not measured yet.
MANY_NODE_STEPS: tuple[Step, ...] = (
    Step("cluster", Who.ALL, Feed.REPLAY, True, "as many workers as node, spread over all nodes"),
    Step("scaleout", Who.ALL, Feed.REPLAY, True, "all workers of all nodes"),
)
MANY_NODE_STALLS: tuple[Stall, ...] = (
    Stall(
        "network",
        ((+1, "cluster"), (-1, "node")),
        "node",
        None,
        "what the same workers cost more on several machines than on one",
    ),
    Stall(
        "scale-out",
        ((+1, "scaleout"), (-1, "node")),
        "node",
        None,
        "what several machines cost over one",
    ),
)

STEP_BY_NAME = {step.name: step for step in STEPS}
STALL_BY_NAME = {stall.name: stall for stall in (*STALLS, *MANY_NODE_STALLS)}

#: Steps of an ordinary profile; `staged` is added on CUDA, `again` only where noise is asked for.
DEFAULT_STEPS = ("solo", "unsynced", "node", "warm", "cold")


def stalls_of(steps: frozenset[str] | set[str]) -> tuple[Stall, ...]:
    """The stalls that can be told from these steps."""
    return tuple(stall for stall in (*STALLS, *MANY_NODE_STALLS) if stall.steps <= steps)


def whole_iteration(steps: frozenset[str] | set[str]) -> str:
    """The step that stands for a whole iteration of a later epoch."""
    order = ("warm", "scaleout", "node", "unsynced", "solo", "cold")
    return next(step for step in order if step in steps)


def compute_step(steps: frozenset[str] | set[str]) -> str | None:
    """The step in which a worker waits for nobody: solo, or node where there is one worker."""
    return next((step for step in ("solo", "node") if step in steps), None)
