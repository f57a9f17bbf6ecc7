"""The terminal report: one screen that says where the time goes, how sure that is, what to do."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from stash.report import bars, facts, words
from stash.report.advice import advise
from stash.report.characters import Charset
from stash.report.figures import figure, written
from stash.report.links import link_lines
from stash.results.profile import Profile, Provenance, StallResult

#: Longer lines are harder to read than to scroll.
MAX_WIDTH = 110
NAME_LIMIT = 60
MESSAGE_LIMIT = 400
FAILURE_LIMIT = 2000  # with the last lines of the worker that failed
MAX_WARNINGS = 10
MAX_ADVICE = 1
WIDE = 92


def render(profile: Profile, *, width: int | None = None) -> RenderableType:
    """The report of one profile, no wider than `width` or the terminal."""
    return TerminalReport(profile, width)


def print_profile(profile: Profile, console: Console) -> None:
    """Print the report of one profile."""
    console.print(render(profile))


class TerminalReport:
    """Lays the report out once the terminal's width and characters are known."""

    def __init__(self, profile: Profile, width: int | None) -> None:
        self._profile = profile
        self._width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(self._width or MAX_WIDTH, options.max_width, MAX_WIDTH)
        page = _Page(self._profile, Charset(ascii_only=options.ascii_only), width)
        yield from console.render(Group(*page.parts()), options.update_width(width))


class _Page:
    def __init__(self, profile: Profile, charset: Charset, width: int) -> None:
        self._profile = profile
        self._charset = charset
        self._width = width
        self._unit, self._factor = facts.iteration_unit(profile)

    def parts(self) -> list[RenderableType]:
        """The page from top to bottom."""
        parts = [*self._what_was_measured(), Text(), self._headline(), Text()]
        for breakdown in bars.breakdowns(self._profile):
            parts += [*self._bar(breakdown), Text()]
        if self._profile.stalls:
            parts += [self._stall_table(), Text()]
        return [*parts, self._notes()]

    def _what_was_measured(self) -> Iterable[RenderableType]:
        provenance = self._profile.provenance
        if provenance is not Provenance.MEASURED:
            yield Text(words.NOT_MEASURED[provenance], style="bold reverse")
        for line in facts.what_was_measured(self._profile, self._name, self._sentence):
            yield Text(line)

    def _headline(self) -> RenderableType:
        first, *others = words.headline(self._profile)
        lines = [Text(first, style="bold"), *(Text(sentence) for sentence in others)]
        lines += [Text(sentence, style="dim") for sentence in words.absent(self._profile)]
        return Group(*lines)

    def _bar(self, breakdown: bars.Breakdown) -> Iterable[RenderableType]:
        whole = written(breakdown.seconds, self._unit, self._factor)
        yield Text(f"{breakdown.title}: where an iteration of {whole} goes")
        yield bars.draw(breakdown.segments, self._width, self._charset)
        yield bars.legend(breakdown.segments, self._width, self._charset)

    def _stall_table(self) -> RenderableType:
        table = self._table()
        table.add_column("stall", overflow="fold")
        table.add_column(f"{self._unit} per iteration", overflow="fold")
        table.add_column("share", justify="right", overflow="fold")
        table.add_column("paper's %", justify="right", overflow="fold")
        table.add_column("finds", justify="right", overflow="fold")
        table.add_column("significant?", overflow="fold")
        for name, stall in facts.stalls_in_order(self._profile):
            style = "" if stall.significant else "dim"
            table.add_row(*self._stall_row(name, stall), style=style)
        return Group(table, Text(facts.table_note(self._profile), style="dim"))

    def _stall_row(self, name: str, stall: StallResult) -> list[Text]:
        seconds = figure(stall.seconds_per_iteration, self._factor)
        indent = "  " if stall.part_of else ""
        return [
            Text(indent + self._charset.safe(name, limit=20)),
            Text(f"{seconds.estimate} ({seconds.range})"),
            Text(words.share_words(stall)),
            Text(facts.paper_words(stall, lambda text: self._charset.safe(text, limit=12))),
            Text(words.detectable(stall, self._factor)),
            Text(words.verdict(stall)),
        ]

    def _step_lines(self) -> list[Text]:
        known = facts.steps_in_order(self._profile)
        if not known:
            return []
        times = [
            f"{self._charset.safe(name, limit=20)} "
            + written(step.seconds_per_iteration, "", self._factor)
            for name, step in known
        ]
        return [Text(f"{self._unit} per iteration: {', '.join(times)}")]

    def _notes(self) -> RenderableType:
        notes = Table.grid(padding=(0, 2, 0, 0))
        notes.add_column(style="bold", no_wrap=True)
        notes.add_column(overflow="fold")
        for label, lines in (
            ("Steps", self._step_lines()),
            ("Links", self._link_lines()),
            ("Rates", _as_text(facts.rate_lines(self._profile.rates))),
            ("Epochs", _as_text(facts.epoch_lines(self._profile))),
            ("Advice", self._advice_lines()),
            ("Checks", self._check_lines()),
            ("End", self._end_lines()),
        ):
            if lines:
                notes.add_row(Text(label), Group(*lines))
        return notes

    def _link_lines(self) -> list[Text]:
        """What a prediction takes them to be, or what was measured beside the profile."""
        measured = self._profile.links
        known = [] if measured is None else link_lines(measured)
        return _as_text([*facts.link_lines(self._profile, self._sentence), *known])

    def _advice_lines(self) -> list[Text]:
        lines = []
        for one in advise(self._profile)[:MAX_ADVICE]:
            start = f"{one.stall} ({one.gain}): " if one.stall else ""
            lines.append(Text(start + self._charset.safe(one.sentence)))
        return lines

    def _check_lines(self) -> list[Text]:
        checks = self._profile.checks
        warnings = [check for check in checks if check.status == "warn"]
        passed = len(checks) - len(warnings)
        lines = [Text(f"{passed} check{'' if passed == 1 else 's'} passed.", style="dim")]
        for check in warnings[:MAX_WARNINGS]:
            line = Text("WARNING ", style="bold yellow")
            line.append(f"{self._name(check.name)}: ", style="bold yellow")
            line.append(self._sentence(check.message), style="none")
            if check.next:
                advice = self._sentence(check.next)
                line.append(f" What to do: {advice}", style="none")
            lines.append(line)
        if len(warnings) > MAX_WARNINGS:
            lines.append(Text(f"{len(warnings) - MAX_WARNINGS} more: `stash show --json`."))
        return lines

    def _end_lines(self) -> list[Text]:
        run = self._profile.run
        if run.rounds == 0:
            return []
        unsure = run.stopped_because in ("failed", "interrupted")
        lines = [Text(words.why_it_stopped(run), style="bold" if unsure else "")]
        if run.message and run.stopped_because == "failed":
            told = run.message[:FAILURE_LIMIT].splitlines()
            lines += [Text(self._sentence(line)) for line in told]
        if any(stall.intermittent for stall in self._profile.stalls.values()):
            lines.append(Text(facts.INTERMITTENT_NOTE, style="dim"))
        return lines

    def _table(self) -> Table:
        gap = 1 if self._width >= WIDE else 0  # the box itself adds one
        return Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)

    def _name(self, text: str) -> str:
        return self._charset.safe(text, limit=NAME_LIMIT)

    def _sentence(self, text: str) -> str:
        return self._charset.safe(text, limit=MESSAGE_LIMIT)


def _as_text(lines: list[str]) -> list[Text]:
    return [Text(line) for line in lines]
