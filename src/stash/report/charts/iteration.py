"""The iteration as a stacked bar, with the interval of every part in a lane below it."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from stash.report import bars, words
from stash.report.bars import Breakdown, Segment
from stash.report.charts.palette import INK, LOOKS, SURFACE, Look, colour_of, text_on
from stash.report.charts.picture import (
    WIDE,
    Picture,
    Row,
    Specification,
    layered,
    panel_title,
    stacked,
    table,
)
from stash.report.facts import iteration_unit
from stash.report.figures import figure, percentage, with_unit, written
from stash.results.profile import Profile

BAR_HEIGHT = 46
LANE_HEIGHT = 7
CHARACTER_WIDTH = 7.2


def iteration_picture(profile: Profile) -> Picture | None:
    """Where the time of an iteration goes: later epochs, then the first."""
    found = bars.breakdowns(profile)
    if not found:
        return None
    return Picture(
        name="iteration",
        title=_title(profile, found[0]),
        words=" ".join(_in_words(profile, one) for one in found),
        describe=lambda width: _stack(profile, found, width),
        rows={f"bar{index}": parts_of(profile, one) for index, one in enumerate(found)},
    )


def _title(profile: Profile, breakdown: Breakdown) -> str:
    """The finding: what training itself takes, and what takes most of the rest."""
    start = f"{bars.legend_words(breakdown.segments[0])} of an iteration".capitalize()
    largest = words.largest_stall(profile)
    if largest is None or largest[1].share is None:
        return f"{start}; no stall of it is significant"
    return f"{start}; {largest[0]} takes most of the rest, {percentage(largest[1].share)}"


def _in_words(profile: Profile, breakdown: Breakdown) -> str:
    parts = ", ".join(bars.legend_words(segment) for segment in breakdown.segments)
    return f"{title_of(profile, breakdown)}: {parts}."


def title_of(profile: Profile, breakdown: Breakdown) -> str:
    """Which iteration a bar is, and how long."""
    unit, factor = iteration_unit(profile)
    whole = written(breakdown.seconds, unit, factor)
    return f"{breakdown.title}: where an iteration of {whole} goes"


def parts_of(profile: Profile, breakdown: Breakdown) -> list[Row]:
    """Segments one after the other; negative ones cannot be drawn, only told."""
    look = LOOKS[profile.provenance]
    rows: list[Row] = []
    start = 0.0
    for index, segment in enumerate(breakdown.segments):
        share = 100 * segment.share.estimate
        if share <= 0:
            continue
        rows.append(_part(segment, look, start, BAR_HEIGHT + 9 + LANE_HEIGHT * index))
        start += share
    return rows


def _part(segment: Segment, look: Look, start: float, lane: int) -> dict[str, object]:
    share = segment.share
    return {
        "kind": segment.label,
        "start": start,
        "middle": start + 50 * share.estimate,
        "end": start + 100 * share.estimate,
        "low": start + 100 * (share.estimate if share.low is None else share.low),
        "high": start + 100 * (share.estimate if share.high is None else share.high),
        "lane": lane,
        "name": segment.label,
        "share": with_unit(figure(share, 100).estimate, "%"),
        "text_colour": text_on(segment.kind, look),
        "size": 100 * share.estimate,
    }


def _stack(profile: Profile, found: Sequence[Breakdown], width: int) -> Specification:
    inner = width - 16
    kinds = kinds_of([segment for one in found for segment in one.segments])
    end = max([100.0, *(_reach(profile, one) for one in found)])
    rows = [
        _bar(profile, f"bar{index}", one, inner, end, kinds, last=index == len(found) - 1)
        for index, one in enumerate(found)
    ]
    return stacked(rows, 16, resolve={"scale": {"color": "independent"}})


def _bar(
    profile: Profile,
    name: str,
    breakdown: Breakdown,
    width: int,
    end: float,
    kinds: dict[str, str],
    *,
    last: bool,
) -> Specification:
    look = LOOKS[profile.provenance]
    told = "percent of the iteration"
    if width > WIDE / 2:
        told += "; lines below a bar: where each part may end (95 %)"
    axis = alt.Axis(title=told, tickCount=5, grid=False) if last else None
    x = alt.X("start:Q", axis=axis, scale=alt.Scale(domain=[0, end], nice=False))
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=list(kinds), range=[colour_of(kind) for kind in kinds.values()]),
        legend=alt.Legend(columns=0 if width > WIDE / 2 else 2, symbolType="square")
        if last
        else None,
    )
    base = alt.Chart(table(name))
    parts = base.mark_bar(
        height=BAR_HEIGHT,
        yOffset=0,
        stroke=SURFACE,
        strokeWidth=2,
        fillOpacity=look.fill_opacity,
    ).encode(x=x, x2=alt.X2("end:Q"), y=alt.YValue(BAR_HEIGHT / 2), color=colour)
    outline = base.mark_bar(
        height=BAR_HEIGHT - 4,
        filled=False,
        strokeWidth=1.5 if look.dash else 0,
        strokeDash=look.outline_dash,
        color=INK,
    ).encode(x=x, x2=alt.X2("end:Q"), y=alt.YValue(BAR_HEIGHT / 2))
    lanes = alt.Y("lane:Q", scale=None, axis=None)
    whiskers = base.mark_rule(strokeWidth=3).encode(
        x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=lanes, color=colour
    )
    ends = base.mark_tick(thickness=2, size=9, orient="vertical", color=INK).encode(
        x=alt.X("end:Q"), y=lanes
    )
    pixels = width / end
    fits = f"(length(datum.name) * {CHARACTER_WIDTH} + 8) / {pixels}"
    tight = f"(length(datum.share) * {CHARACTER_WIDTH} + 4) / {pixels}"
    names = base.transform_filter(f"datum.size >= {fits}")
    texts = [
        names.mark_text(fontWeight="bold").encode(
            text=alt.Text("name:N"), y=alt.YValue(BAR_HEIGHT / 2 - 8)
        ),
        names.mark_text().encode(text=alt.Text("share:N"), y=alt.YValue(BAR_HEIGHT / 2 + 9)),
        base.transform_filter(f"datum.size < {fits} && datum.size >= {tight}")
        .mark_text()
        .encode(text=alt.Text("share:N"), y=alt.YValue(BAR_HEIGHT / 2)),
    ]
    coloured = [
        text.encode(x=alt.X("middle:Q"), color=alt.Color("text_colour:N", scale=None))
        for text in texts
    ]
    title: str | list[str] = title_of(profile, breakdown)
    if width <= WIDE / 2:
        whole = written(breakdown.seconds, *iteration_unit(profile))
        title = [breakdown.title, f"an iteration of {whole}"]
    return layered(
        parts,
        outline,
        whiskers,
        ends,
        *coloured,
        width=width,
        height=BAR_HEIGHT + 6 + LANE_HEIGHT * len(breakdown.segments),
        title=panel_title(title, fontSize=12.5, fontWeight="bold", offset=6),
    )


def _reach(profile: Profile, breakdown: Breakdown) -> float:
    """How far the parts that can be drawn reach, intervals included."""
    rows = parts_of(profile, breakdown)
    return max((float(str(row["end"])) for row in rows), default=0.0)


def kinds_of(segments: Sequence[Segment]) -> dict[str, str]:
    """What each label of a bar is, and so how it is coloured."""
    return {segment.label: segment.kind for segment in segments}
