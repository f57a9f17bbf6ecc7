"""Time against cost of every way to rent a job; those that no other beats, and the one to take.

A page may move the limits: each way on the front is a group of its own, which its script can fade
and mark, and the axes are told as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.advise.recommendation import Recommendation
from stash.report.charts.drawing import (
    AXIS_HEIGHT,
    Canvas,
    Drawing,
    LogScale,
    Scale,
    axis_below,
    axis_left,
    text_width,
)
from stash.report.charts.palette import LOOKS
from stash.report.charts.picture import WIDE, Picture
from stash.report.rent import Rent, Way, rent_of
from stash.results.profile import Provenance

HEIGHT = 300
LEFT, RIGHT, TOP = 62, 16, 10
#: Ways that others beat are drawn up to this many times the front's own extent.
BEYOND = 2.0


def rent_picture(found: Recommendation) -> Picture | None:
    """The front of what to rent; nothing where nothing came into question."""
    rent = rent_of(found)
    known = [way for way in rent.ways if way.hours.estimate > 0 and way.cost.estimate > 0]
    if not known or len(known) < len(rent.ways):
        return None
    currency = found.question.currency
    others = [(one.hours.estimate, one.cost(currency).estimate) for one in found.candidates]
    return Picture(
        name="rent",
        title=_title(rent),
        words=_words(rent),
        draw=lambda width: _draw(rent, others, width),
    )


def _title(rent: Rent) -> str:
    choice = rent.choice
    if choice is None:
        return "No way to rent keeps the limits"
    return f"Rent {choice.sentence}"


def _words(rent: Rent) -> str:
    front = "; ".join(way.sentence for way in rent.ways)
    return (
        f"Time and cost of the whole job on {rent.ways_considered} ways to rent. No other way is "
        f"both faster and cheaper than these: {front}."
    )


def _draw(rent: Rent, others: Sequence[tuple[float, float]], width: int) -> Drawing:
    canvas = Canvas(width)
    bottom = TOP + HEIGHT
    hours = _scale([way.hours.estimate for way in rent.ways], LEFT, width - RIGHT)
    cost = _scale([way.cost.estimate for way in rent.ways], bottom, TOP)
    money = "cost, $" if rent.unit == "$" else f"cost, {rent.unit}"
    axis_left(canvas, cost, LEFT, width - RIGHT - LEFT, money)
    axis_below(canvas, hours, bottom, "hours for the whole job", count=width // 70, grid_from=TOP)
    inside = [
        (hours(one), cost(paid))
        for one, paid in others
        if 0 < one <= hours.high and 0 < paid <= cost.high
    ]
    canvas.dots(inside, colour="other", size=3)
    steps = "L".join(
        f"{hours(w.hours.estimate):.1f} {cost(w.cost.estimate):.1f}" for w in rent.ways
    )
    canvas.path(f"M{steps}", stroke="muted", dash=(2, 3))
    place = f"{hours.low} {hours.high} {hours.start} {hours.end}"
    height = f"{cost.low} {cost.high} {cost.start} {cost.end}"
    with canvas.group(f'data-hours="{place}" data-cost="{height}"'):
        for limit, value in (("deadline", rent.deadline), ("budget", rent.budget)):
            _limit(canvas, limit, value.values[value.chosen], hours, cost)
    for position, way in enumerate(rent.ways):
        _way(canvas, way, position, hours(way.hours.estimate), cost(way.cost.estimate))
    return canvas.drawing(bottom + AXIS_HEIGHT)


def _scale(values: Sequence[float], start: float, end: float) -> Scale:
    return LogScale(min(values) / 1.25, max(values) * BEYOND, start, end)


def _limit(canvas: Canvas, name: str, value: float | None, hours: Scale, cost: Scale) -> None:
    """A line at a limit, hidden where there is none."""
    shown = "hidden" if value is None else "visible"
    with canvas.group(f'data-limit="{name}" visibility="{shown}"'):
        if name == "deadline":
            x = hours.end if value is None else hours(min(max(value, hours.low), hours.high))
            canvas.line(x, cost.end, x, cost.start, stroke="alarm", stroke_width=1.5)
        else:
            y = cost.end if value is None else cost(min(max(value, cost.low), cost.high))
            canvas.line(hours.start, y, hours.end, y, stroke="alarm", stroke_width=1.5)


def _way(canvas: Canvas, way: Way, position: int, x: float, y: float) -> None:
    look = LOOKS[Provenance(way.provenance)]
    with canvas.group(f'data-way="{position}"'):
        fill = "accent" if look.filled else "surface"
        canvas.symbol(look.shape, x, y, size=4.5, fill=fill, stroke="accent")
        with canvas.group(f'class="mark" visibility="{"visible" if way.is_choice else "hidden"}"'):
            canvas.symbol(look.shape, x, y, size=7.5, fill="alarm", stroke="ink")
            name = way.name
            after = x + 14 + text_width(name) <= canvas.width
            room = canvas.width > WIDE / 2 or text_width(name) < x
            if after or room:
                canvas.text(
                    x + 14 if after else x - 14,
                    y - 8,
                    name,
                    anchor="start" if after else "end",
                    bold=True,
                )
