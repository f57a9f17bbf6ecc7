"""Progress while a run measures: what is known so far and what it has cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stash.report.characters import Charset
from stash.report.figures import duration, figure, time_unit
from stash.results.assemble import interval
from stash.results.estimates import Times
from stash.results.recording import Round
from stash.results.statistics import Estimate

#: Estimates are recomputed no more often than this: the processors belong to the run.
SECONDS_BETWEEN_UPDATES = 1.0
SECONDS_BETWEEN_LINES = 10.0
SECONDS_PER_HOUR = 3600.0


class Progress:
    """Shows a run to whoever watches it: a live table in a terminal, plain lines elsewhere."""

    def __init__(
        self,
        console: Console,
        *,
        max_seconds: float | None = None,
        price_usd_per_hour: float | None = None,
        half_width_asked: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._max_seconds = max_seconds
        self._price_usd_per_hour = price_usd_per_hour
        self._half_width_asked = half_width_asked
        self._clock = clock
        self._charset = Charset(ascii_only=console.options.ascii_only)
        self._phase = "starting"
        self._rounds = 0
        self._times: Times | None = None
        self._stalls: dict[str, Estimate] = {}
        self._began = self._shown = clock()
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        self._began = self._shown = self._clock()
        if self._console.is_terminal:
            # Refreshed by calls only: a thread of its own could wake up inside a timed block.
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
        wait = SECONDS_BETWEEN_UPDATES if self._live is not None else SECONDS_BETWEEN_LINES
        if not rounds or not (first or self._clock() - self._shown >= wait):
            return
        self._times = Times.of(rounds)
        self._stalls = self._times.stalls()
        self._shown = self._clock()
        if self._live is None:
            self._line(f"{self._counted()}{self._known()}")
        else:
            self._refresh()

    def tick(self) -> None:
        """Time has passed; nothing else is new. While rounds run, only they are drawn."""
        if self._rounds:
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
        return f"widest half-width {100 * reached:.2g} % of an iteration{goal}"

    def _spent(self) -> str:
        seconds = self._clock() - self._began
        words = f"{duration(seconds)}{self._dollars(seconds)} so far"
        if self._max_seconds is None:
            return words
        left = max(0.0, self._max_seconds - seconds)
        return f"{words}, at most {duration(left)}{self._dollars(left)} to go"

    def _dollars(self, seconds: float) -> str:
        if self._price_usd_per_hour is None:
            return ""
        return f" (${seconds / SECONDS_PER_HOUR * self._price_usd_per_hour:.2f})"
