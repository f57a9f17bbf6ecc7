"""Every stall with its interval against zero: which are there, and which cannot be told."""

from __future__ import annotations

from dataclasses import dataclass

from stash.report import words
from stash.report.characters import harmless
from stash.report.charts.drawing import AXIS_HEIGHT, Canvas, Drawing, around, axis_below, shortened
from stash.report.charts.palette import LOOKS, colour_of
from stash.report.charts.picture import WIDE, Picture
from stash.report.facts import stalls_in_order
from stash.report.figures import percentage
from stash.results.document import Interval
from stash.results.profile import Profile, StallResult
from stash.results.whole import iteration_seconds

ROW_HEIGHT = 34


@dataclass(frozen=True)
class Row:
    """One stall's share in percent, and the smallest that would have been found."""

    name: str
    label: str
    share: Interval
    unsure: float | None
    significant: bool

    @property
    def ends(self) -> tuple[float, float]:
        """Where its interval ends."""
        estimate, low, high = self.share.estimate, self.share.low, self.share.high
        return 100 * (estimate if low is None else low), 100 * (estimate if high is None else high)


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
        draw=lambda width: _forest(profile, rows, width),
    )


def _row(profile: Profile, name: str, stall: StallResult) -> Row | None:
    share = stall.share if stall.share is not None else stall.share_of_first_epoch
    if share is None:
        return None
    label = harmless(name, limit=24) + ("" if stall.share is not None else " *")
    return Row(
        name=name,
        label=f"\N{BULLET} {label}" if stall.part_of else label,
        share=share,
        unsure=_detectable_share(profile, stall),
        significant=stall.significant,
    )


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


def _words(rows: list[Row]) -> str:
    told = [
        f"{row.label.lstrip(chr(0x2022) + ' ')} {percentage(row.share)}"
        + ("" if row.significant else ", not significant")
        for row in rows
    ]
    note = " * of the first epoch." if any(row.label.endswith("*") for row in rows) else ""
    return (
        f"Shares of an iteration with 95 % intervals: {'; '.join(told)}.{note} "
        "Grey: what this run could not tell from nothing. Hollow: not significant."
    )


def _forest(profile: Profile, rows: list[Row], width: int) -> Drawing:
    wide = width > WIDE / 2
    left, right = 122, width - (190 if wide else 16)
    look = LOOKS[profile.provenance]
    canvas = Canvas(width)
    reach = [end for row in rows for end in row.ends]
    reach += [side * row.unsure for row in rows if row.unsure is not None for side in (1, -1)]
    x = around(reach, left, right, count=8 if wide else 4, zero=True)
    bottom = ROW_HEIGHT * len(rows)
    axis_below(canvas, x, bottom, "percent of an iteration", count=8 if wide else 4, grid_from=0)
    for index, row in enumerate(rows):
        y = ROW_HEIGHT * (index + 0.5)
        if row.unsure is not None:
            start = x(-row.unsure)
            canvas.rect(start, y - 13, x(row.unsure) - start, 26, fill="doubt")
    canvas.line(x(0), 0, x(0), bottom, stroke="muted")
    for index, row in enumerate(rows):
        y = ROW_HEIGHT * (index + 0.5)
        canvas.text(left - 10, y + 4, shortened(row.label, left - 10), anchor="end")
        low, high = (x(end) for end in row.ends)
        canvas.line(low, y, high, y, stroke=colour_of(row.name), stroke_width=4, dash=look.dash)
        sure = "ink" if row.significant else "muted"
        fill = "ink" if row.significant and look.filled else "surface"
        canvas.symbol(look.shape, x(100 * row.share.estimate), y, size=5, fill=fill, stroke=sure)
        if wide:
            canvas.text(right + 14, y + 4, percentage(row.share))
    return canvas.drawing(bottom + AXIS_HEIGHT)
