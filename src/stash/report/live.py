"""Progress while a run measures: what is known so far, what it has cost, what is still to come.

Nothing is drawn while a block is timed: rounds are drawn while workers rest
(engine/intermission.py), and the passing of time only before they run. As workers wait
meanwhile, drawing is rationed: it takes at most a hundredth of the run, however long that becomes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stash.report.characters import Charset
from stash.report.figures import duration, figure, plain, price_figure, time_unit
from stash.results.assemble import interval
from stash.results.estimates import Times
from stash.results.recording import Round
from stash.results.statistics import Estimate

#: Estimates are recomputed no more often than this: the time belongs to the run.
SECONDS_BETWEEN_UPDATES = 1.0
#: And no more often than this many times what the last update took.
UPDATE_RATION = 100.0
SECONDS_BETWEEN_LINES = 10.0
#: Half-widths of fewer rounds are chance, and nothing to compare later ones with.
ROUNDS_BEFORE_HALF_WIDTHS = 5
SECONDS_PER_HOUR = 3600.0


class Progress:
    """Shows a run to whoever watches it: a live table in a terminal, plain lines elsewhere."""

    def __init__(
        self,
        console: Console,
        *,
        max_seconds: float | None = None,
        max_usd: float | None = None,
        price_usd_per_hour: float | None = None,
        half_width_asked: float | None = None,
        min_rounds: int = 1,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._console = console
        self._max_seconds = _least(max_seconds, _seconds_for(max_usd, price_usd_per_hour))
        self._price_usd_per_hour = price_usd_per_hour
        self._half_width_asked = half_width_asked
        self._min_rounds = min_rounds
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._charset = Charset(ascii_only=console.options.ascii_only)
        self._phase = "starting"
        self._rounds = 0
        self._times: Times | None = None
        self._stalls: dict[str, Estimate] = {}
        self._first_half_widths: dict[str, float] = {}
        self._first_round: tuple[int, float] | None = None  # how many were there, and when
        self._update_seconds = 0.0
        self._began = self._shown = clock()
        self._limits_began: float | None = None
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        self._began = self._shown = self._clock()
        if self._console.is_terminal:
            # Refreshed by calls only: a thread of its own would wake up inside a timed block.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def limits_begin(self) -> None:
        """Workers run their first iteration: from now on limits of time and money count."""
        if self._limits_began is None:
            self._limits_began = self._clock()

    def phase(self, name: str) -> None:
        """The run has begun something else."""
        self._phase = self._charset.safe(name, limit=60)
        if self._live is None:
            self._line(self._phase)
        else:
            self._refresh()

    def round(self, rounds: Sequence[Round]) -> None:
        """All complete rounds so far."""
        first = self._rounds == 0
        self._rounds = len(rounds)
        if self._first_round is None and rounds:
            self._first_round = (self._rounds, self._clock())
        if not rounds or not (first or self._clock() - self._shown >= self._wait()):
            return
        began = self._cpu_clock()
        self._times = Times.of(rounds)
        self._stalls = self._times.stalls()
        for name, stall in self._stalls.items():
            if stall.half_width is not None and self._rounds >= ROUNDS_BEFORE_HALF_WIDTHS:
                self._first_half_widths.setdefault(name, stall.half_width)
        self._shown = self._clock()
        if self._live is None:
            self._line(f"{self._counted()}{self._known()}")
        else:
            self._refresh()
        self._update_seconds = self._cpu_clock() - began

    def _wait(self) -> float:
        """Seconds until the screen may change again."""
        usual = SECONDS_BETWEEN_UPDATES if self._live is not None else SECONDS_BETWEEN_LINES
        return max(usual, UPDATE_RATION * self._update_seconds)

    def tick(self) -> None:
        """Time has passed; nothing else is new. Once workers run, they say when to draw."""
        if self._limits_began is not None:
            return
        if self._live is not None and self._clock() - self._shown >= SECONDS_BETWEEN_UPDATES:
            self._shown = self._clock()
            self._refresh()

    def _refresh(self) -> None:
        assert self._live is not None
        self._live.update(self._screen(), refresh=True)

    def _screen(self) -> RenderableType:
        head = Text(f"{self._phase}: {self._counted()}; {self._spent()}")
        if self._times is None:
            return head
        unit, factor = time_unit(self._times.iteration_seconds)
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, stall in self._stalls.items():
            shown = figure(interval(stall), factor)
            table.add_row(
                Text(f"  {self._charset.safe(name, limit=20)}"),
                Text(f"{shown.estimate} {unit}"),
                Text(f"({shown.range})"),
                Text(self._shrinking(name, stall, factor, unit)),
                Text("" if stall.significant else "not significant"),
            )
        return Group(head, table, Text(f"  {self._half_width()}"))

    def _line(self, message: str) -> None:
        self._console.print(Text(f"stash: {message}; {self._spent()}"), soft_wrap=True)

    def _counted(self) -> str:
        return "1 round" if self._rounds == 1 else f"{self._rounds} rounds"

    def _known(self) -> str:
        return f", {self._half_width()}" if self._times is not None else ""

    def _half_width(self) -> str:
        reached = None if self._times is None else self._times.widest_half_width()
        if reached is None:
            return "no intervals yet"
        asked = self._half_width_asked
        goal = "" if asked is None else f", {100 * asked:.2g} % asked"
        return f"widest half-width {plain(100 * reached)} % of an iteration{goal}"

    def _shrinking(self, name: str, stall: Estimate, factor: float, unit: str) -> str:
        """How sure it is by now, and how sure it was at first."""
        first, now = self._first_half_widths.get(name), stall.half_width
        if first is None or now is None:
            return ""
        return f"+-{plain(now * factor)} {unit}, at first {plain(first * factor)}"

    def _spent(self) -> str:
        seconds = self._clock() - self._began
        words = [f"{duration(seconds)}{self._dollars(seconds)} so far"]
        most = self._most_seconds()
        expected = _least(self._expected_seconds(), most)
        if expected is not None and expected != most:
            words.append(f"about {duration(expected)}{self._dollars(expected)} to go")
        if most is not None:
            left = f"at most {duration(most)}{self._dollars(most)}"
            words.append(left if len(words) > 1 else f"{left} to go")
        return ", ".join(words)

    def _most_seconds(self) -> float | None:
        """What is left at most, as far as limits say so."""
        if self._max_seconds is None:
            return None
        counted = 0.0 if self._limits_began is None else self._clock() - self._limits_began
        return max(0.0, self._max_seconds - counted)

    def _expected_seconds(self) -> float | None:
        """What is left if intervals go on to shrink with the root of the number of rounds."""
        reached = None if self._times is None else self._times.widest_half_width()
        if reached is None or not self._half_width_asked or self._first_round is None:
            return None
        before, when = self._first_round
        if self._rounds <= before:
            return None
        per_round = (self._clock() - when) / (self._rounds - before)
        needed = max(self._min_rounds, self._rounds * (reached / self._half_width_asked) ** 2)
        return max(0.0, needed - self._rounds) * per_round

    def _dollars(self, seconds: float) -> str:
        if self._price_usd_per_hour is None:
            return ""
        return f" (${price_figure(seconds / SECONDS_PER_HOUR * self._price_usd_per_hour)})"


def _seconds_for(usd: float | None, usd_per_hour: float | None) -> float | None:
    """How long this much money lasts."""
    return usd / usd_per_hour * SECONDS_PER_HOUR if usd is not None and usd_per_hour else None


def _least(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return min(known, default=None)
