"""Every stall with its interval against zero: which are there, and which cannot be told."""

from __future__ import annotations

from typing import Any

import altair as alt

from stash.report import words
from stash.report.bars import iteration_seconds
from stash.report.characters import harmless
from stash.report.charts.palette import DOUBT, INK, LOOKS, MUTED, SURFACE, colour_of
from stash.report.charts.picture import WIDE, Picture, Specification, layered, table
from stash.report.facts import stalls_in_order
from stash.report.figures import percentage
from stash.results.profile import Profile, StallResult


def stalls_picture(profile: Profile) -> Picture | None:
    """Shares of an iteration with their intervals, one row a stall."""
    rows = [
        row
        for name, stall in stalls_in_order(profile)
        if (row := _row(profile, name, stall)) is not None
    ]
    if not rows:
        return None
    return Picture(
        name="stalls",
        title=_title(profile),
        words=_words(rows),
        describe=lambda width: _forest(profile, rows, width),
        rows={"stalls": rows, "zero": [{}]},
    )


def _row(profile: Profile, name: str, stall: StallResult) -> dict[str, object] | None:
    share = stall.share if stall.share is not None else stall.share_of_first_epoch
    if share is None:
        return None
    label = harmless(name, limit=24) + ("" if stall.share is not None else " *")
    unsure = _detectable_share(profile, stall)
    return {
        "label": f"\N{BULLET} {label}" if stall.part_of else label,
        "kind": name,
        "share": 100 * share.estimate,
        "low": None if share.low is None else 100 * share.low,
        "high": None if share.high is None else 100 * share.high,
        "unsure": unsure,
        "minus_unsure": None if unsure is None else -unsure,
        "told": percentage(share),
        "significant": stall.significant,
        "colour": colour_of(name),
    }


def _detectable_share(profile: Profile, stall: StallResult) -> float | None:
    """The smallest stall that would have been found, as a share of the iteration in question."""
    seconds = iteration_seconds(profile, first=stall.share is None)
    smallest = stall.detectable_seconds_per_iteration
    if smallest is None or seconds is None or seconds.estimate <= 0:
        return None
    return 100 * smallest / seconds.estimate


def _title(profile: Profile) -> str:
    told = [name for name, stall in profile.stalls.items() if not stall.significant]
    unsure = [harmless(name, limit=24) for name in told]
    largest = words.largest_stall(profile)
    if largest is None or largest[1].share is None:
        start = "No stall of a later epoch is significant"
    else:
        start = f"The largest stall is {largest[0]}, {percentage(largest[1].share)} of the time"
    if not unsure:
        return f"{start}; every stall here is significant"
    some = ", ".join(unsure[:4])
    return f"{start}; not significant: {some}"


def _words(rows: list[dict[str, object]]) -> str:
    told = [
        f"{str(row['label']).lstrip(chr(0x2022) + ' ')} {row['told']}"
        + ("" if row["significant"] else ", not significant")
        for row in rows
    ]
    note = " * of the first epoch." if any(str(row["label"]).endswith("*") for row in rows) else ""
    return (
        f"Shares of an iteration with 95 % intervals: {'; '.join(told)}.{note} "
        "Grey: what this run could not tell from nothing. Hollow: not significant."
    )


def _forest(profile: Profile, rows: list[dict[str, object]], width: int) -> Specification:
    wide = width > WIDE / 2
    inner = width - (310 if wide else 130)
    look = LOOKS[profile.provenance]
    labels = [str(row["label"]) for row in rows]
    base = alt.Chart(table("stalls"))
    y = alt.Y(
        "label:N",
        sort=labels,
        scale=alt.Scale(domain=labels),
        axis=alt.Axis(title=None, ticks=False, domain=False, labelPadding=8),
    )
    x = alt.X("share:Q", axis=alt.Axis(title="percent of an iteration", tickCount=6))
    colour = alt.Color("colour:N", scale=None)
    doubt = base.mark_bar(color=DOUBT, height=26).encode(
        x=alt.X("minus_unsure:Q"), x2=alt.X2("unsure:Q"), y=y
    )
    zero = alt.Chart(table("zero")).mark_rule(color=MUTED).encode(x=alt.XDatum(0))
    ranges = base.mark_rule(strokeWidth=4, strokeDash=look.outline_dash).encode(
        x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y, color=colour
    )
    point: dict[str, Any] = {"size": 120, "shape": look.shape, "strokeWidth": 2.5, "opacity": 1}
    there = base.transform_filter("datum.significant").mark_point(
        fill=INK if look.filled else SURFACE, stroke=INK, **point
    )
    unsure = base.transform_filter("!datum.significant").mark_point(
        fill=SURFACE, stroke=MUTED, **point
    )
    layers = [doubt, zero, ranges, there.encode(x=x, y=y), unsure.encode(x=x, y=y)]
    if wide:
        told = base.mark_text(align="left", dx=14)
        layers.append(told.encode(x=alt.XValue(inner), y=y, text=alt.Text("told:N")))
    return layered(*layers, width=inner, height={"step": 34})
