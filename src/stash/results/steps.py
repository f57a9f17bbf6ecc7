"""The method as two tables: steps (ways to run one iteration) and stalls (their differences).

Words and meaning follow docs/design.md, section 2. A stall is a linear combination of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Who(str, Enum):
    """Which workers run an iteration of a step."""

    FIRST = "first"  # one worker; the others wait without spinning
    NODE = "node"  # every worker of the first node
    SPREAD = "spread"  # as many as of one node, spread as evenly as can be over all nodes
    ALL = "all"  # every worker of all nodes

    def includes(self, rank: int, *, nodes: int, workers_per_node: int) -> bool:
        """Whether a worker runs; ranks count through the workers of one node after the other."""
        if self is Who.FIRST:
            return rank == 0
        if self is Who.NODE:
            return rank < workers_per_node
        if self is Who.SPREAD:
            node, local = divmod(rank, workers_per_node)
            return local < workers_per_node // nodes + (node < workers_per_node % nodes)
        return True


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

    @property
    def is_in_epochs(self) -> bool:
        """Whether it is a part of an epoch's iterations, which no step with idle devices is."""
        return all(STEP_BY_NAME[step].who is not Who.SPREAD for step in self.steps)


STEPS: tuple[Step, ...] = (
    #    name        who        feed         exchange
    Step("solo", Who.FIRST, Feed.REPLAY, False, "one worker alone, data on the device"),
    Step("unsynced", Who.NODE, Feed.REPLAY, False, "all workers, gradients not exchanged"),
    Step("node", Who.NODE, Feed.REPLAY, True, "all workers, gradients exchanged"),
    Step("staged", Who.NODE, Feed.STAGED, True, "as node, data copied from pinned host memory"),
    Step("warm", Who.NODE, Feed.WARM, True, "as node, real data from a full page cache"),
    Step("cold", Who.NODE, Feed.COLD, True, "as node, real data from an empty page cache"),
    Step("cluster", Who.SPREAD, Feed.REPLAY, True, "as many as node, spread over all nodes"),
    Step("spread", Who.SPREAD, Feed.REPLAY, False, "as cluster, gradients not exchanged"),
    Step("scaleout", Who.ALL, Feed.REPLAY, True, "all workers of all nodes"),
    Step("again", Who.NODE, Feed.REPLAY, True, "node once more: its difference to node is noise"),
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
        "network",
        ((+1, "cluster"), (-1, "node")),
        "node",
        None,
        "what the same workers cost more on several machines than on one",
    ),
    Stall(
        "links",
        ((+1, "cluster"), (-1, "spread"), (-1, "node"), (+1, "unsynced")),
        "node",
        "network",
        "what crossing machines adds to exchanging gradients",
    ),
    Stall(
        "relief",
        ((+1, "spread"), (-1, "unsynced")),
        "node",
        "network",
        "what fewer workers per machine save (usually negative)",
    ),
    Stall(
        "scale-out",
        ((+1, "scaleout"), (-1, "node")),
        "node",
        None,
        "what several machines cost over one",
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

STEP_BY_NAME = {step.name: step for step in STEPS}
STALL_BY_NAME = {stall.name: stall for stall in STALLS}

#: A combination of steps: (sign, step).
Terms = tuple[tuple[int, str], ...]

#: Steps of an ordinary profile; `staged` is added on CUDA, `again` only where noise is asked for.
DEFAULT_STEPS = ("solo", "unsynced", "node", "warm", "cold")
#: And those that several nodes add.
CLUSTER_STEPS = ("cluster", "spread", "scaleout")


def usual_steps(workers_per_node: int, *, has_cuda: bool, nodes: int = 1) -> tuple[str, ...]:
    """The steps that make sense: one worker of a node has nobody to exchange with there."""
    usual = DEFAULT_STEPS if workers_per_node > 1 else ("node", "warm", "cold")
    if has_cuda:
        usual = (*usual, "staged")
    return (*usual, *possible_cluster_steps(workers_per_node, nodes))


def possible_cluster_steps(workers_per_node: int, nodes: int) -> tuple[str, ...]:
    """Of the steps on several nodes, those that these can run: one worker cannot be spread."""
    if nodes == 1:
        return ()
    return CLUSTER_STEPS if workers_per_node > 1 else ("scaleout",)


def stalls_of(steps: frozenset[str] | set[str]) -> tuple[Stall, ...]:
    """The stalls that can be told from these steps."""
    return tuple(stall for stall in STALLS if stall.steps <= steps)


def fullest_step(steps: frozenset[str] | set[str]) -> str:
    """The one step that is nearest to an iteration of a later epoch."""
    order = ("scaleout", "warm", "node", "unsynced", "solo", "cluster", "spread", "cold")
    return next(step for step in order if step in steps)


def missing_for_epochs(steps: frozenset[str] | set[str]) -> tuple[str, ...]:
    """What these steps of several nodes lack for an iteration of all of them to be known."""
    fed = bool({"warm", "cold"} & steps)
    needed = ("scaleout", "node") if fed else ("scaleout",)
    return tuple(step for step in needed if step not in steps)


def whole_iteration(
    steps: frozenset[str] | set[str], data: str = "warm", *, nodes: int = 1
) -> Terms | None:
    """What stands for a whole iteration of an epoch that is fed by this step's data.

    Data is fed on one node. An iteration of several nodes is that of all their workers and what
    data adds to it on one node; no step of one node stands for it.
    """
    if nodes > 1 and missing_for_epochs(steps):
        return None
    if data in steps and "scaleout" not in steps:
        return ((+1, data),)
    if data in steps and "node" in steps:
        return ((+1, "scaleout"), (+1, data), (-1, "node"))
    return ((+1, fullest_step(steps)),) if data == "warm" else None


def compute_step(steps: frozenset[str] | set[str]) -> str | None:
    """The step in which a worker waits for nobody: solo, or node where there is one worker."""
    return next((step for step in ("solo", "node") if step in steps), None)
