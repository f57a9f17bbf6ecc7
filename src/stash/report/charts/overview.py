"""Bars of several profiles below each other, drawn by where their numbers come from."""

from __future__ import annotations

from collections.abc import Sequence

from stash.report import bars
from stash.report.bars import Breakdown
from stash.report.charts.drawing import (
    AXIS_HEIGHT,
    Canvas,
    Drawing,
    Scale,
    axis_below,
    legend,
    shortened,
)
from stash.report.charts.iteration import draw_parts, kinds_of, parts_of
from stash.report.charts.palette import LOOKS
from stash.report.charts.picture import WIDE, Picture
from stash.report.figures import percentage
from stash.results.profile import Profile

#: More profiles than this are drawn closer together.
MANY = 20


def overview_picture(profiles: Sequence[Profile], names: Sequence[str]) -> Picture | None:
    """Later epochs of several profiles, one bar each."""
    found = [
        (name, profile, whole[0])
        for profile, name in zip(profiles, names, strict=True)
        if (whole := bars.breakdowns(profile))
    ]
    if not found:
        return None
    return Picture(
        name="overview",
        title=_overview_title(profiles, names),
        words=_overview_words(profiles, names),
        draw=lambda width: _overview(found, width),
    )


def _overview(found: Sequence[tuple[str, Profile, Breakdown]], width: int) -> Drawing:
    wide = width > WIDE / 2
    left, right = (160, width - 150) if wide else (110, width - 14)
    canvas = Canvas(width)
    step = 30 if len(found) <= MANY else 16
    end = max([100.0, *(part.end for *_, one in found for part in parts_of(one))])
    x = Scale(0.0, end, left, right)
    bottom = step * len(found)
    axis_below(canvas, x, bottom, "percent of an iteration", count=6, grid_from=0)
    for index, (name, profile, breakdown) in enumerate(found):
        y = step * index
        look = LOOKS[profile.provenance]
        canvas.text(left - 8, y + step / 2 + 4, shortened(name, left - 8), anchor="end")
        draw_parts(canvas, parts_of(breakdown), x, y + 0.1 * step, 0.8 * step, look)
        waiting = profile.waiting.later if breakdown.title != "First epoch" else None
        if wide and waiting is not None:
            canvas.text(right + 8, y + step / 2 + 4, percentage(waiting))
    kinds = kinds_of([one for *_, one in found])
    return canvas.drawing(legend(canvas, kinds, 16, bottom + AXIS_HEIGHT + 6))


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
        for profile, name in list(zip(profiles, names, strict=True))[:MANY]
    ]
    more = f", and {len(profiles) - MANY} more in the table" if len(profiles) > MANY else ""
    return f"Later epochs, parts of an iteration: {'; '.join(told)}{more}."
