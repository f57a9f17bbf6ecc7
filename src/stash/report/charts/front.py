"""The front of what can be rented: hours against dollars, the chosen way named."""

from __future__ import annotations

import altair as alt

from stash.advise.recommendation import Candidate, Recommendation
from stash.report.charts.palette import ACCENT, ALARM, INK, LOOKS, MUTED
from stash.report.charts.picture import WIDE, Picture, Row, Specification, layered, table

#: Of the ways that lie behind the front, the cheapest: more would only be a cloud.
MAX_BEHIND = 300


def front_picture(found: Recommendation) -> Picture | None:
    """Every way on the front, with intervals, before the ways behind it."""
    if not found.front:
        return None
    front = set(found.front)
    behind = [n for n in range(len(found.candidates)) if n not in front][:MAX_BEHIND]
    rows = [_row(found, n, front=True) for n in found.front]
    return Picture(
        name="front",
        title=_title(found),
        words=_words(found),
        describe=lambda width: _describe(found, width),
        rows={"front": rows, "behind": [_row(found, n, front=False) for n in behind]},
    )


def _row(found: Recommendation, position: int, *, front: bool) -> Row:
    one = found.candidates[position]
    cost = one.cost(found.question.currency)
    return {
        "name": one.name,
        "hours": one.hours.estimate,
        "hours_low": one.hours.low,
        "hours_high": one.hours.high,
        "cost": cost.estimate,
        "cost_low": cost.low,
        "cost_high": cost.high,
        "provenance": one.provenance.value,
        "chosen": position == found.chosen,
        "label": one.name if position == found.chosen else "",
    }


def _describe(found: Recommendation, width: int) -> Specification:
    paid = "dollars" if found.question.currency == "usd" else "device-hours"
    log = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X("hours:Q", scale=log, axis=alt.Axis(title="hours", tickCount=5, format="~g"))
    y = alt.Y("cost:Q", scale=log, axis=alt.Axis(title=paid, tickCount=5, format="~s"))
    front, behind = alt.Chart(table("front")), alt.Chart(table("behind"))
    layers = [
        behind.mark_circle(size=14, color=MUTED, opacity=0.25).encode(x=x, y=y),
        front.mark_line(color=ACCENT, strokeWidth=1.5).encode(x=x, y=y, order="hours:Q"),
    ]
    chosen = front.transform_filter("datum.chosen")
    for low, high, field in (("hours_low", "hours_high", "x"), ("cost_low", "cost_high", "y")):
        bar = chosen.mark_rule(color=ALARM, strokeWidth=1.5)
        layers.append(
            bar.encode(x=alt.X(f"{low}:Q", scale=log), x2=f"{high}:Q", y=y)
            if field == "x"
            else bar.encode(y=alt.Y(f"{low}:Q", scale=log), y2=f"{high}:Q", x=x)
        )
    for provenance in sorted({one.provenance for one in found.pareto}):
        look = LOOKS[provenance]
        points = front.transform_filter(f"datum.provenance == '{provenance.value}'")
        mark = points.mark_point(shape=look.shape, filled=look.filled, size=60, color=ACCENT)
        layers.append(mark.encode(x=x, y=y))
    layers.append(chosen.mark_point(size=170, color=ALARM, strokeWidth=2.5).encode(x=x, y=y))
    text = chosen.mark_text(align="left", dx=10, dy=-10, fontWeight="bold", color=INK)
    layers.append(text.encode(x=x, y=y, text="label:N"))
    return layered(*layers, width=width - 70, height=300 if width > WIDE / 2 else 240)


def _title(found: Recommendation) -> str:
    best, ends = found.choice, (found.pareto[0], found.pareto[-1])
    if best is None:
        return f"No way is within the limits; the front goes from {_point(found, ends[0])} to " + (
            _point(found, ends[1])
        )
    return f"{_point(found, best)} is what to rent for {found.question.workload}"


def _words(found: Recommendation) -> str:
    ends = found.pareto[0], found.pareto[-1]
    return (
        f"{len(found.front)} of {len(found.candidates)} ways are beaten by none in both time and "
        f"cost: from {_point(found, ends[0])} to {_point(found, ends[1])}. "
        "Circles are measured, triangles predicted; bars are the interval of the chosen way."
    )


def _point(found: Recommendation, one: Candidate) -> str:
    cost = one.cost(found.question.currency).estimate
    paid = f"${cost:,.0f}" if found.question.currency == "usd" else f"{cost:,.0f} device-hours"
    return f"{one.name} ({one.hours.estimate:.3g} h, {paid})"
