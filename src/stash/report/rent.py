"""What to rent, in words and rounded numbers: the ways that no other beats in both time and cost.

The rule of choosing is the advise room's; a page follows it while its reader moves the limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stash.advise.recommendation import Candidate, Recommendation
from stash.report.characters import harmless
from stash.report.figures import duration_unit, written
from stash.report.recommendation import question_words, small_print, tie_words
from stash.results.document import Interval

NAME_LIMIT = 60
#: Of a limit that a slider offers, rounded up so that it still holds the way that it is made for.
LIMIT_DIGITS = 3


@dataclass(frozen=True)
class Way:
    """One way on the front: a machine type at a number of nodes."""

    name: str
    cloud: str
    provenance: str
    hours: Interval
    cost: Interval
    time_words: str
    cost_words: str
    stall: str
    is_choice: bool

    @property
    def sentence(self) -> str:
        """What renting it means."""
        told = f"{self.time_words} for {self.cost_words}, {self.provenance}"
        return f"{self.name} ({self.cloud}): {told}"


@dataclass(frozen=True)
class Limit:
    """A slider: its positions, the last of which is no limit, and what each is called."""

    name: str
    values: tuple[float | None, ...]
    labels: tuple[str, ...]
    chosen: int


@dataclass(frozen=True)
class Rent:
    """Everything that a report says about a recommendation."""

    words: str
    job: str
    ways: tuple[Way, ...]
    ways_considered: int
    worth: float  # without limits: what an hour less may cost
    unit: str  # of the cost
    deadline: Limit
    budget: Limit
    nothing: str  # where no way keeps both limits
    ties: str
    small_print: tuple[str, ...]
    next_probe: str

    @property
    def choice(self) -> Way | None:
        """The way that the document chose."""
        return next((way for way in self.ways if way.is_choice), None)


def rent_of(found: Recommendation) -> Rent:
    """A recommendation, ready to be shown."""
    currency = found.question.currency
    unit = "$" if currency == "usd" else "device-hours"
    chosen = found.choice
    ways = tuple(_way(one, found, unit, is_choice=one is chosen) for one in found.pareto)
    return Rent(
        words=harmless(found.words),
        job=harmless(question_words(found)),
        ways=ways,
        ways_considered=len(found.candidates),
        worth=_worth(ways),
        unit=unit,
        deadline=_limit(
            "deadline", (way.hours for way in ways), found.question.deadline_hours, _deadline_words
        ),
        budget=_limit(
            "budget",
            (way.cost for way in ways),
            found.question.budget_usd,
            lambda value: f"at most {_exact(value, unit)}",
        ),
        nothing=_nothing(ways),
        ties=harmless(tie_words(found)) if found.ties else "",
        small_print=tuple(harmless(one) for one in small_print(found)),
        next_probe="" if found.next_probe is None else harmless(found.next_probe.words),
    )


def time_words(hours: Interval) -> str:
    """How long a job takes, in a unit that reads well."""
    unit, factor = duration_unit(hours.estimate * 3600)
    return written(hours, unit, 3600 * factor)


def _way(one: Candidate, found: Recommendation, unit: str, *, is_choice: bool) -> Way:
    cost = one.cost(found.question.currency)
    return Way(
        name=harmless(one.name, limit=NAME_LIMIT),
        cloud=harmless(one.cloud, limit=NAME_LIMIT),
        provenance=one.provenance.value,
        hours=one.hours,
        cost=cost,
        time_words=time_words(one.hours),
        cost_words=written(cost, unit),
        stall=harmless(one.largest_stall or "-", limit=NAME_LIMIT),
        is_choice=is_choice,
    )


def _worth(ways: Sequence[Way]) -> float:
    """What an hour less costs on average from the cheapest to the fastest way."""
    if not ways:
        return 0.0
    cheapest, fastest = ways[0], ways[-1]
    saved = cheapest.hours.estimate - fastest.hours.estimate
    dearer = fastest.cost.estimate - cheapest.cost.estimate
    return dearer / saved if saved > 0 else 0.0


def _limit(
    name: str, found: Iterable[Interval], asked: float | None, words: Callable[[float], str]
) -> Limit:
    """One position for each way, one that is too little for all, what was asked, and no limit."""
    enough = sorted({_rounded_up(one.estimate) for one in found})
    too_little = [_rounded_up(0.8 * enough[0])] if enough else []
    values = sorted({*too_little, *enough, *([] if asked is None else [asked])})
    positions: tuple[float | None, ...] = (*values, None)
    labels = tuple(f"no {name}" if value is None else words(value) for value in positions)
    return Limit(name, positions, labels, positions.index(asked))


def _rounded_up(value: float) -> float:
    if value <= 0:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - LIMIT_DIGITS + 1)
    rounded = float(f"{math.ceil(value / step) * step:.{LIMIT_DIGITS}g}")
    return max(rounded, value)


def _deadline_words(hours: float) -> str:
    unit, factor = duration_unit(hours * 3600)
    return f"within {_exact(hours * 3600 * factor, unit)}"


def _exact(value: float, unit: str) -> str:
    number = f"{value:,.{LIMIT_DIGITS}g}" if value < 999.5 else f"{value:,.0f}"
    return f"${number}" if unit == "$" else f"{number} {unit}"


def _nothing(ways: Sequence[Way]) -> str:
    if not ways:
        return "No way to rent was found."
    return (
        f"No way keeps these limits. The fastest is {ways[-1].sentence}. "
        f"The cheapest is {ways[0].sentence}."
    )
