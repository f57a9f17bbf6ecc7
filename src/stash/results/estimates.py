"""From rounds to the estimate of every step and stall, for stop rule, progress and profile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stash.results import statistics
from stash.results.recording import Round
from stash.results.statistics import Estimate
from stash.results.steps import Stall, Terms, compute_step, fullest_step, stalls_of


@dataclass(frozen=True)
class Times:
    """Seconds per iteration by step: one list of rounds a launch, aligned across steps."""

    by_step: dict[str, list[list[float]]]

    @classmethod
    def of(cls, rounds: Iterable[Round]) -> Times:
        """Group rounds by launch. Every round holds every step, so lists stay aligned."""
        launches: dict[int, list[dict[str, float]]] = {}
        for one in rounds:
            launches.setdefault(one.launch, []).append(one.seconds_per_iteration())
        steps = {step for launch in launches.values() for times in launch for step in times}
        return cls(
            {
                step: [[times[step] for times in launch] for launch in launches.values()]
                for step in steps
            }
        )

    @property
    def steps(self) -> frozenset[str]:
        """The steps that were measured."""
        return frozenset(self.by_step)

    def combine(self, terms: Terms) -> list[list[float]]:
        """A linear combination of steps, within each round."""
        columns = [(sign, self.by_step[step]) for sign, step in terms]
        first = columns[0][1]
        return [
            [
                sum(sign * column[launch][number] for sign, column in columns)
                for number in range(len(rounds))
            ]
            for launch, rounds in enumerate(first)
        ]

    def step(self, name: str) -> Estimate:
        """Seconds per iteration of one step; by its mean where it holds an intermittent stall."""
        return self.iteration(((+1, name),))

    def iteration(self, terms: Terms) -> Estimate:
        """The same of an iteration that is put together from several steps."""
        if self._holds_intermittent_stall(terms):
            return statistics.plain_mean(self.combine(terms))
        return statistics.estimate(self.combine(terms))

    @property
    def iteration_seconds(self) -> float:
        """An iteration, for what is small or large beside it."""
        return statistics.estimate(self.by_step[fullest_step(self.steps)]).value

    def difference(self, terms: Terms) -> Estimate:
        """Seconds per iteration of a combination of steps; the mean leads where intermittent."""
        return statistics.estimate(self.combine(terms), iteration_seconds=self.iteration_seconds)

    def stall(self, stall: Stall) -> Estimate:
        """Seconds per iteration of one stall: its difference within rounds."""
        return self.difference(stall.terms)

    def stalls(self) -> dict[str, Estimate]:
        """Every stall that these steps can tell."""
        return {stall.name: self.stall(stall) for stall in stalls_of(self.steps)}

    def relative(self, terms: Terms, base: Terms) -> Estimate:
        """A combination of steps as a fraction of another."""
        return statistics.ratio(
            self.combine(terms),
            self.combine(base),
            intermittent=self.difference(terms).intermittent,
            base_intermittent=self._holds_intermittent_stall(base),
        )

    def _holds_intermittent_stall(self, iteration: Terms) -> bool:
        alone = compute_step(self.steps)
        if alone is None or iteration == ((+1, alone),):
            return False
        return self.difference((*iteration, (-1, alone))).intermittent

    def widest_half_width(self) -> float | None:
        """The least sure stall's half-width as a fraction of an iteration, where all have one."""
        widths = [estimate.half_width for estimate in self.stalls().values()]
        known = [width for width in widths if width is not None]
        if not widths or len(known) < len(widths):
            return None
        return max(known) / self.iteration_seconds
