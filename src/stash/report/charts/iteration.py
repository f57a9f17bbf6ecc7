"""The iteration as a stacked bar, with the interval of every part in a lane below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.report import bars, words
from stash.report.bars import Breakdown, Segment
from stash.report.charts.drawing import (
    AXIS_HEIGHT,
    Canvas,
    Drawing,
    Scale,
    axis_below,
    legend,
    text_width,
)
from stash.report.charts.palette import LOOKS, Look, colour_of, text_on
from stash.report.charts.picture import WIDE, Picture
from stash.report.facts import iteration_unit
from stash.report.figures import figure, percentage, with_unit, written
from stash.results.profile import Profile

BAR_HEIGHT = 46
LANE_HEIGHT = 7
GAP = 22
EDGE = 16  # room for numbers under the ends of the axis


@dataclass(frozen=True)
class Part:
    """A segment where it lies in the bar, in percent of the iteration."""

    segment: Segment
    start: float
    end: float
    low: float
    high: float


def iteration_picture(profile: Profile) -> Picture | None:
    """Where the time of an iteration goes: later epochs, then the first."""
    found = bars.breakdowns(profile)
    if not found:
        return None
    return Picture(
        name="iteration",
        title=_title(profile, found[0]),
        words=" ".join(_in_words(profile, one) for one in found),
        draw=lambda width: _draw(profile, found, width),
    )


def parts_of(breakdown: Breakdown) -> list[Part]:
    """Segments one after the other; negative ones cannot be drawn, only told."""
    parts, start = [], 0.0
    for segment in breakdown.segments:
        share = segment.share
        if share.estimate <= 0:
            continue
        low = share.estimate if share.low is None else share.low
        high = share.estimate if share.high is None else share.high
        end = start + 100 * share.estimate
        parts.append(Part(segment, start, end, start + 100 * low, start + 100 * high))
        start = end
    return parts


def draw_parts(
    canvas: Canvas, parts: Sequence[Part], x: Scale, y: float, height: float, look: Look
) -> None:
    """A bar without its words."""
    for part in parts:
        left, width = x(part.start), x(part.end) - x(part.start)
        colour = colour_of(part.segment.kind)
        canvas.rect(
            left, y, width, height, fill=colour, opacity=look.fill_opacity, stroke="surface"
        )
        if look.dash:
            canvas.rect(
                left + 1, y + 2, max(0.0, width - 2), height - 4, stroke="ink", dash=look.dash
            )


def kinds_of(breakdowns: Sequence[Breakdown]) -> dict[str, str]:
    """What each label of a bar is coloured with."""
    return {
        segment.label: colour_of(segment.kind) for one in breakdowns for segment in one.segments
    }


def _title(profile: Profile, breakdown: Breakdown) -> str:
    """The finding: what training itself takes, and what takes most of the rest."""
    start = f"{bars.legend_words(breakdown.segments[0])} of an iteration".capitalize()
    largest = words.largest_stall(profile)
    if largest is None or largest[1].share is None:
        return f"{start}; no stall of it is significant"
    return f"{start}; {largest[0]} takes most of the rest, {percentage(largest[1].share)}"


def _in_words(profile: Profile, breakdown: Breakdown) -> str:
    parts = ", ".join(bars.legend_words(segment) for segment in breakdown.segments)
    return f"{_whole(profile, breakdown)}: {parts}."


def _whole(profile: Profile, breakdown: Breakdown) -> str:
    """Which iteration a bar is, and how long."""
    unit, factor = iteration_unit(profile)
    whole = written(breakdown.seconds, unit, factor)
    return f"{breakdown.title}: where an iteration of {whole} goes"


def _draw(profile: Profile, found: Sequence[Breakdown], width: int) -> Drawing:
    canvas, y = Canvas(width), 0.0
    x = _scale(found, width)
    for breakdown in found:
        y = _bar(canvas, profile, breakdown, x, y) + GAP
    told = "percent of the iteration"
    if width > WIDE / 2:
        told += "; lines below a bar: where each part may end (95 %)"
    y -= GAP - 4
    axis_below(canvas, x, y, told, count=6)
    return canvas.drawing(legend(canvas, kinds_of(found), EDGE, y + AXIS_HEIGHT + 6))


def _scale(found: Sequence[Breakdown], width: int) -> Scale:
    """From nothing to the whole, or as far as parts and their intervals reach."""
    parts = [part for one in found for part in parts_of(one)]
    low = min([0.0, *(part.low for part in parts)])
    high = max([100.0, *(part.end for part in parts), *(part.high for part in parts)])
    return Scale(low, high, EDGE, width - EDGE)


def _bar(canvas: Canvas, profile: Profile, breakdown: Breakdown, x: Scale, y: float) -> float:
    """One bar with its title, its words and a lane for each part's interval; returns its end."""
    look = LOOKS[profile.provenance]
    for line in _bar_title(profile, breakdown, canvas.width):
        y += 15
        canvas.text(EDGE, y, line, size=12.5, bold=True)
    y += 8
    parts = parts_of(breakdown)
    draw_parts(canvas, parts, x, y, BAR_HEIGHT, look)
    for part in parts:
        _inside(canvas, part, x, y, text_on(part.segment.kind, look))
    lane = y + BAR_HEIGHT + 9
    for part in parts:
        colour = colour_of(part.segment.kind)
        canvas.line(x(part.low), lane, x(part.high), lane, stroke=colour, stroke_width=3)
        canvas.line(x(part.end), lane - 4.5, x(part.end), lane + 4.5, stroke="ink", stroke_width=2)
        lane += LANE_HEIGHT
    return lane


def _bar_title(profile: Profile, breakdown: Breakdown, width: float) -> list[str]:
    if width > WIDE / 2:
        return [_whole(profile, breakdown)]
    whole = written(breakdown.seconds, *iteration_unit(profile))
    return [breakdown.title, f"an iteration of {whole}"]


def _inside(canvas: Canvas, part: Part, x: Scale, y: float, colour: str) -> None:
    """A part's name and share, or its share alone, or nothing: as much as fits."""
    room = x(part.end) - x(part.start)
    middle = (x(part.start) + x(part.end)) / 2
    name = part.segment.label
    share = with_unit(figure(part.segment.share, 100).estimate, "%")
    if room >= text_width(name) + 8:
        canvas.text(middle, y + 19, name, colour=colour, anchor="middle", bold=True)
        canvas.text(middle, y + 36, share, colour=colour, anchor="middle")
    elif room >= text_width(share) + 4:
        canvas.text(middle, y + 27, share, colour=colour, anchor="middle")
