"""Bars of several profiles below each other, drawn by where their numbers come from."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from stash.report import bars
from stash.report.charts.iteration import kinds_of, parts_of
from stash.report.charts.palette import INK, LOOKS, SURFACE, colour_of
from stash.report.charts.picture import WIDE, Picture, Row, Specification, layered, table
from stash.report.figures import percentage
from stash.results.profile import Profile


def overview_picture(profiles: Sequence[Profile], names: Sequence[str]) -> Picture | None:
    """Later epochs of several profiles, one bar each."""
    rows: list[Row] = []
    kinds: dict[str, str] = {}
    for profile, name in zip(profiles, names, strict=True):
        found = bars.breakdowns(profile)
        if not found:
            continue
        waiting = profile.waiting.later if found[0].title != "First epoch" else None
        for row in parts_of(profile, found[0]):
            told = "" if waiting is None else percentage(waiting)
            rows.append(
                {**row, "profile": name, "waiting": told, "provenance": profile.provenance.value}
            )
        kinds |= kinds_of(found[0].segments)
    if not rows:
        return None
    return Picture(
        name="overview",
        title=_overview_title(profiles, names),
        words=_overview_words(profiles, names),
        describe=lambda width: _overview(list(names), kinds, profiles, width),
        rows={"parts": rows},
    )


def _overview(
    names: list[str], kinds: dict[str, str], profiles: Sequence[Profile], width: int
) -> Specification:
    wide = width > WIDE / 2
    margin = 250 if wide else 110
    base = alt.Chart(table("parts"))
    y = alt.Y(
        "profile:N",
        sort=names,
        scale=alt.Scale(domain=names),
        axis=alt.Axis(title=None, labelLimit=150 if wide else 100, ticks=False, domain=False),
    )
    scale = alt.Scale(domain=list(kinds), range=[colour_of(kind) for kind in kinds.values()])
    legend = alt.Legend(columns=0 if wide else 2, symbolType="square")
    x = alt.X("start:Q", axis=alt.Axis(title="percent of an iteration", tickCount=5))
    colour = alt.Color("kind:N", scale=scale, legend=legend)
    layers: list[alt.Chart] = []
    for provenance in sorted({profile.provenance for profile in profiles}):
        look = LOOKS[provenance]
        chosen = base.transform_filter(f"datum.provenance == '{provenance.value}'")
        bar = chosen.mark_bar(stroke=SURFACE, strokeWidth=1, fillOpacity=look.fill_opacity)
        layers.append(bar.encode(x=x, x2=alt.X2("end:Q"), y=y, color=colour))
        if look.dash:
            outline = chosen.mark_bar(filled=False, color=INK, strokeDash=look.outline_dash)
            layers.append(outline.encode(x=x, x2=alt.X2("end:Q"), y=y))
    if wide:
        told = base.transform_filter("datum.start == 0").mark_text(align="left", dx=8)
        layers.append(told.encode(x=alt.XValue(width - margin), y=y, text=alt.Text("waiting:N")))
    step = 30 if len(names) <= 20 else 16
    return layered(*layers, width=width - margin, height={"step": step})


def _overview_title(profiles: Sequence[Profile], names: Sequence[str]) -> str:
    known = [
        (one.waiting.later, name)
        for one, name in zip(profiles, names, strict=True)
        if one.waiting.later is not None
    ]
    if len(known) < 2:
        return "Where an iteration of each profile goes"
    least = min(known, key=lambda item: item[0].estimate)
    most = max(known, key=lambda item: item[0].estimate)
    return (
        f"Waiting ranges from {percentage(least[0])} of the time in {least[1]} to "
        f"{percentage(most[0])} in {most[1]}"
    )


def _overview_words(profiles: Sequence[Profile], names: Sequence[str]) -> str:
    told = [
        f"{name} ({profile.provenance.value}) "
        + (
            "cannot tell waiting"
            if profile.waiting.later is None
            else f"waits {percentage(profile.waiting.later)}"
        )
        for profile, name in list(zip(profiles, names, strict=True))[:20]
    ]
    more = f", and {len(profiles) - 20} more in the table" if len(profiles) > 20 else ""
    return f"Later epochs, parts of an iteration: {'; '.join(told)}{more}."
