"""A recommendation on a terminal: what to rent, why, the front that it was chosen from."""

from __future__ import annotations

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from stash.advise.recommendation import Candidate, Recommendation
from stash.report.characters import Charset
from stash.report.figures import (
    duration_unit,
    figure,
    large_count,
    plain,
    size_in_bytes,
    with_unit,
    written,
)
from stash.report.terminal import MAX_WIDTH
from stash.results.document import Interval

MAX_ROWS, MAX_TIES = 12, 3


def render(found: Recommendation) -> RenderableType:
    """The page of one recommendation."""
    return RecommendationPage(found)


class RecommendationPage:
    """Lays the page out once the terminal's width and characters are known."""

    def __init__(self, found: Recommendation) -> None:
        self._found = found

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, MAX_WIDTH)
        charset = Charset(ascii_only=options.ascii_only)
        parts = _parts(self._found, charset)
        yield from console.render(Group(*parts), options.update_width(width))


def _parts(found: Recommendation, charset: Charset) -> list[RenderableType]:
    def line(text: str, style: str = "") -> Text:
        return Text(charset.safe(text), style=style)

    parts: list[RenderableType] = [line(question_words(found), "dim"), Text()]
    best = found.choice
    if best is not None:
        parts += [line(choice_words(found, best), "bold")]
    parts += [line(found.words)]
    if found.ties:
        parts += [line(tie_words(found))]
    if found.next_probe is not None:
        parts += [Text(), line(found.next_probe.words)]
    if found.front:
        parts += [Text(), _front_table(found, charset)]
    parts += [Text(), *(line(f"- {remark}", "dim") for remark in small_print(found))]
    return parts


def question_words(found: Recommendation) -> str:
    """What was asked, in one line."""
    asked = found.question
    words = (
        f"{asked.workload}: {asked.epochs} epoch{'' if asked.epochs == 1 else 's'} of "
        f"{large_count(asked.samples)} samples, batch {asked.batch_per_worker} a GPU, {asked.dtype}"
    )
    if asked.data_bytes is not None:
        words += f", {size_in_bytes(asked.data_bytes)} of data"
    if asked.deadline_hours is not None:
        unit, factor = duration_unit(asked.deadline_hours * 3600)
        words += f"; within {asked.deadline_hours * 3600 * factor:.3g} {unit}"
    if asked.budget_usd is not None:
        words += f"; for at most ${asked.budget_usd:g}"
    return words


def choice_words(found: Recommendation, best: Candidate) -> str:
    """The chosen way with time and cost."""
    stall = best.largest_stall
    waits = "" if stall is None else f"; largest stall {stall}, {_share(best, stall)} of the time"
    return (
        f"Rent {best.name} ({best.cloud}, {best.gpus_per_node} x {best.gpu}"
        f"{' each' if best.nodes > 1 else ''}): {_hours(best)}, {_cost(found, best)}, "
        f"{best.provenance.value}{waits}."
    )


def tie_words(found: Recommendation) -> str:
    """Ways that cannot be told from the chosen one."""
    names = [found.candidates[position].name for position in found.ties]
    more = len(names) - MAX_TIES
    listed = ", ".join(names[:MAX_TIES]) + (f" and {more} more" if more > 0 else "")
    return f"Tied: what is known cannot tell it from {listed}."


def _front_table(found: Recommendation, charset: Charset) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    paid = "$" if found.question.currency == "usd" else "device-hours"
    origins = {one.provenance.value for one in found.pareto}
    headings = ["", "cheapest to fastest", "hours", paid, "waits for"]
    for heading in [*headings, "from"] if len(origins) > 1 else headings:
        table.add_column(heading, overflow="fold")
    shown = _thinned(found)
    for position in shown:
        one = found.candidates[position]
        stall = one.largest_stall
        cells = [
            ">" if position == found.chosen else "",
            one.name,
            _compared(one.hours),
            _compared(one.cost(found.question.currency)),
            "-" if stall is None else f"{stall} {_share(one, stall)}",
            one.provenance.value,
        ]
        table.add_row(*(Text(charset.safe(cell)) for cell in cells[: len(table.columns)]))
    hidden = len(found.front) - len(shown)
    below = [f"All {origins.pop()}."] if len(origins) == 1 else []
    below += ["Rows share most of their error: digits are for comparing them, ranges for each."]
    below += [f"{hidden} more of the front are in --json and --csv."] if hidden else []
    return Group(table, Text(" ".join(below), style="dim"))


def _thinned(found: Recommendation) -> list[int]:
    """Positions of the front to show: the ends, the chosen one, and others evenly between."""
    front = list(found.front)
    if len(front) <= MAX_ROWS:
        return front
    step = (len(front) - 1) / (MAX_ROWS - 2)
    kept = {front[round(number * step)] for number in range(MAX_ROWS - 1)}
    if found.chosen in front:
        kept.add(found.chosen)
    return [position for position in front if position in kept]


def small_print(found: Recommendation) -> list[str]:
    """What the numbers rest on."""
    assumed = found.assumptions
    minutes = assumed.setup_seconds / 60, assumed.profiling_seconds / 60
    lines = [
        f"Hours and dollars include {minutes[0]:.3g} min of set-up and, where nothing was "
        f"measured, {minutes[1]:.3g} min of profiling. Intervals of predictions are "
        f"{found.interval_percent:g} %.",
        *found.remarks,
    ]
    lines += [f"Profile {one.id} ({one.provenance.value}): {one.words}." for one in found.profiles]
    if found.left_out:
        told = "; ".join(f"{len(one.machines)} {one.reason}" for one in found.left_out)
        lines.append(f"Machines left out: {told}.")
    return lines


def _hours(one: Candidate) -> str:
    unit, factor = duration_unit(one.hours.estimate * 3600)
    return written(one.hours, unit, 3600 * factor)


def _cost(found: Recommendation, one: Candidate) -> str:
    if found.question.currency == "device-hours":
        return written(one.device_hours, "device-hours")
    return written(one.cost("usd"), "$")


def _compared(value: Interval) -> str:
    number = f"{value.estimate:,.0f}" if value.estimate >= 999.5 else f"{value.estimate:.3g}"
    return f"{number} ({figure(value).range})"


def _share(one: Candidate, part: str) -> str:
    return with_unit(plain(100 * one.parts[part]), "%")
