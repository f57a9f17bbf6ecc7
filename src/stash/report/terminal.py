"""The terminal report: one screen that says where the time goes, how sure that is, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from stash.report import bars, words
from stash.report.advice import advise
from stash.report.characters import Charset
from stash.report.figures import (
    derived,
    duration,
    duration_unit,
    figure,
    large_count,
    time_unit,
    with_unit,
    written,
)
from stash.results.profile import EpochResult, Profile, Provenance, Rates, StallResult
from stash.results.steps import MANY_NODE_STEPS, STALL_BY_NAME, STEPS

T = TypeVar("T")

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
        whole = bars.whole_step(profile)
        seconds = profile.steps[whole].seconds_per_iteration.estimate if whole else 1.0
        self._unit, self._factor = time_unit(seconds)

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
        yield Text(self._workload_words())
        yield Text(self._worker_words())
        yield Text(self._machine_words())
        yield Text(self._run_words())

    def _workload_words(self) -> str:
        workload = self._profile.workload
        facts = [
            f"{large_count(workload.parameters)} parameters",
            self._name(workload.dtype),
            self._name(workload.optimizer),
            f"batch {workload.batch_per_worker} per worker",
        ]
        return f"{self._name(workload.name)}: {', '.join(facts)}"

    def _worker_words(self) -> str:
        machine, workload = self._profile.machine, self._profile.workload
        workers = "1 worker" if machine.workers == 1 else f"{machine.workers} workers"
        names = sorted({self._name(name) for name in machine.devices} - {machine.device})
        kind = f" ({', '.join(names[:2])})" if names else ""
        nodes = "" if machine.nodes == 1 else f" on {machine.nodes} nodes"
        return (
            f"{workers} x {self._name(machine.device)}{kind}{nodes}, "
            f"{workload.loader_workers} loader worker"
            f"{'' if workload.loader_workers == 1 else 's'} each"
        )

    def _machine_words(self) -> str:
        machine, workload = self._profile.machine, self._profile.workload
        size = "" if workload.samples is None else f" ({large_count(workload.samples)} samples)"
        data = f"data {self._name(workload.data)}{size}; " if workload.data else ""
        instance = f" ({self._name(machine.instance)})" if machine.instance else ""
        return (
            f"{data}host {self._name(machine.host)}{instance}, {machine.cores} cores; "
            f"torch {self._name(machine.torch)}, {self._name(machine.backend)}"
        )

    def _run_words(self) -> str:
        profile, run = self._profile, self._profile.run
        if profile.prediction is not None:
            calibrated = self._charset.safe(profile.prediction.calibrated_on, limit=MESSAGE_LIMIT)
            return f"predicted {moment(profile.created)}, calibrated on {calibrated}"
        launches = "1 launch" if run.launches == 1 else f"{run.launches} launches"
        rounds = "1 round" if run.rounds == 1 else f"{run.rounds} rounds"
        return (
            f"{profile.provenance.value}: {rounds} in {launches}, "
            f"{duration(run.measuring_seconds)}, {moment(profile.created)}, "
            f"profile {self._name(profile.id)}"
        )

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
        for name, stall in _in_order(self._profile.stalls, list(STALL_BY_NAME)):
            style = "" if stall.significant else "dim"
            table.add_row(*self._stall_row(name, stall), style=style)
        note = TABLE_NOTE
        if self._profile.prediction is not None:
            note = PREDICTED_NOTE.format(percent=self._profile.prediction.interval_percent)
        return Group(table, Text(note, style="dim"))

    def _stall_row(self, name: str, stall: StallResult) -> list[Text]:
        seconds = figure(stall.seconds_per_iteration, self._factor)
        indent = "  " if stall.part_of else ""
        paper = "-"
        if stall.percent is not None:
            paper = with_unit(figure(stall.percent).estimate, "%")
            paper = f"{paper} {self._charset.safe(stall.percent_of, limit=12)}"
        return [
            Text(indent + self._charset.safe(name, limit=20)),
            Text(f"{seconds.estimate} ({seconds.range})"),
            Text(words.share_words(stall)),
            Text(paper),
            Text(words.detectable(stall, self._factor)),
            Text(words.verdict(stall)),
        ]

    def _step_lines(self) -> list[Text]:
        known = _in_order(self._profile.steps, [step.name for step in (*STEPS, *MANY_NODE_STEPS)])
        if not known:
            return []
        times = [
            f"{self._charset.safe(name, limit=20)} "
            + written(step.seconds_per_iteration, "", self._factor)
            for name, step in known
        ]
        return [Text(f"{self._unit} per iteration: {', '.join(times)}")]

    def _link_lines(self) -> list[Text]:
        prediction = self._profile.prediction
        if prediction is None:
            return []
        known = [("inside a node", prediction.inside), ("between nodes", prediction.between)]
        places = [f"{where}: {self._charset.safe(link)}" for where, link in known if link]
        lines = [Text(f"{prediction.messages} messages an iteration; {'; '.join(places)}")]
        for one in prediction.slices:
            seconds = written(derived(one.seconds_per_iteration), self._unit, self._factor)
            link = self._charset.safe(one.inside)
            lines.append(Text(f"{100 * one.chance:.0f} % of slices: {link}, {seconds}"))
        return lines if prediction.inside or prediction.between else []

    def _notes(self) -> RenderableType:
        notes = Table.grid(padding=(0, 2, 0, 0))
        notes.add_column(style="bold", no_wrap=True)
        notes.add_column(overflow="fold")
        for label, lines in (
            ("Steps", self._step_lines()),
            ("Links", self._link_lines()),
            ("Rates", _rate_lines(self._profile.rates)),
            ("Epochs", self._epoch_lines()),
            ("Advice", self._advice_lines()),
            ("Checks", self._check_lines()),
            ("End", self._end_lines()),
        ):
            if lines:
                notes.add_row(Text(label), Group(*lines))
        return notes

    def _epoch_lines(self) -> list[Text]:
        epochs = self._profile.epoch
        named = (("first", epochs.first), ("later", epochs.later))
        return [Text(_epoch_words(name, epoch)) for name, epoch in named if epoch is not None]

    def _advice_lines(self) -> list[Text]:
        if self._profile.prediction is not None:
            return []
        lines = []
        for one in advise(self._profile)[:MAX_ADVICE]:
            of = "the first epoch" if one.only_first_epoch else "the time"
            gain = f" (up to {100 * one.gain_share:.0f} % of {of})" if one.stall else ""
            start = f"{one.stall}{gain}: " if one.stall else ""
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
            line.append(self._charset.safe(check.message, limit=MESSAGE_LIMIT), style="none")
            if check.next:
                advice = self._charset.safe(check.next, limit=MESSAGE_LIMIT)
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
            lines += [Text(self._charset.safe(line, limit=MESSAGE_LIMIT)) for line in told]
        if any(stall.intermittent for stall in self._profile.stalls.values()):
            lines.append(Text(INTERMITTENT_NOTE, style="dim"))
        return lines

    def _table(self) -> Table:
        gap = 1 if self._width >= WIDE else 0  # the box itself adds one
        return Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)

    def _name(self, text: str) -> str:
        return self._charset.safe(text, limit=NAME_LIMIT)


INTERMITTENT_NOTE = (
    "An intermittent stall hits some iterations only: it is given by its plain mean, which "
    "leaves none of them out."
)
TABLE_NOTE = (
    "Intervals are 95 %. share: of a whole iteration (* of the first epoch); only shares add up. "
    "paper's %: of the step named. finds: smallest stall that this run finds 4 times in 5."
)
PREDICTED_NOTE = (
    "Intervals are {percent:.0f} %, from this model's own errors against published measurements. "
    "share: of a whole iteration; only shares add up. paper's %: of the step named."
)


def moment(created: datetime) -> str:
    """A point in time to the minute."""
    return created.isoformat(sep=" ", timespec="minutes").replace("+00:00", " UTC")


def _in_order(found: dict[str, T], order: list[str]) -> list[tuple[str, T]]:
    known = [name for name in order if name in found]
    unknown = [name for name in found if name not in order]
    return [(name, found[name]) for name in known + unknown]


def _rate_lines(rates: Rates) -> list[Text]:
    named = (
        ("devices", rates.devices),
        ("preprocessing", rates.preprocessing),
        ("storage", rates.storage),
    )
    known = [f"{name} {written(rate, '')}" for name, rate in named if rate is not None]
    if not known:
        return []
    lines = [Text(f"samples/s alone: {', '.join(known)}")]
    slowest = words.bottleneck(rates)
    return [*lines, Text(slowest)] if slowest else lines


def _epoch_words(name: str, epoch: EpochResult) -> str:
    unit, factor = duration_unit(epoch.seconds.estimate)
    time = written(epoch.seconds, unit, factor)
    iterations = f"{epoch.iterations} iterations"
    if epoch.usd is not None:
        return f"{name}: {time}, {written(epoch.usd, '$')}, {iterations}"
    return f"{name}: {time}, {written(epoch.device_hours, 'device-hours')}, {iterations}"
