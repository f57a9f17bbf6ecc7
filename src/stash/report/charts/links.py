"""How fast gradients can travel: bus bandwidth of an all-reduce over the size of its message."""

from __future__ import annotations

from collections.abc import Sequence

from stash.report.charts.drawing import (
    AXIS_HEIGHT,
    Canvas,
    Drawing,
    LogScale,
    Scale,
    axis_below,
    axis_left,
    legend,
)
from stash.report.charts.picture import Picture
from stash.report.figures import size_in_bytes
from stash.report.links import WHERE, figure_of_rate, link_lines
from stash.results.document import Interval
from stash.results.links import AllReduce
from stash.results.profile import Profile

HEIGHT = 190
LEFT, RIGHT, TOP = 62, 16, 10
#: A colour and a shape each, so that they differ without colour, too.
LOOKS = {
    "node": ("communication", "circle"),
    "between": ("scale-out", "square"),
    "cluster": ("contention", "diamond"),
}
GIGA = 1e-9


class SizeScale(LogScale):
    """The same for sizes of messages."""

    def labels(self, ticks: Sequence[float]) -> list[str]:
        """Sizes with their unit."""
        return [size_in_bytes(tick) for tick in ticks]


def links_picture(profile: Profile) -> Picture | None:
    """Exchange inside a node and between nodes, where links were probed."""
    found = (
        [] if profile.links is None else [one for one in profile.links.all_reduce if _known(one)]
    )
    if profile.links is None or not found:
        return None
    return Picture(
        name="links",
        title=_title(found),
        words=f"Bus bandwidth of an all-reduce by size, 95 % intervals. "
        f"{'; '.join(link_lines(profile.links))}.",
        draw=lambda width: _draw(found, width),
    )


def _known(one: AllReduce) -> bool:
    return any(message.bus_bytes_per_second.estimate > 0 for message in one.messages)


def _title(found: Sequence[AllReduce]) -> str:
    told = []
    for one in found:
        largest = max(one.messages, key=lambda message: message.bytes)
        told.append(f"{figure_of_rate(largest.bus_bytes_per_second)} {WHERE[one.where]}")
    return f"Large messages travel at {'; '.join(told)}"


def _draw(found: Sequence[AllReduce], width: int) -> Drawing:
    canvas, bottom = Canvas(width), TOP + HEIGHT
    sizes = [message.bytes for one in found for message in one.messages]
    rates = [message.bus_bytes_per_second for one in found for message in one.messages]
    x = SizeScale(min(sizes) / 1.5, max(sizes) * 1.5, LEFT, width - RIGHT)
    y = _rate_scale(rates, bottom)
    axis_left(canvas, y, LEFT, width - RIGHT - LEFT, "bus, GB/s")
    axis_below(canvas, x, bottom, "size of a message", count=width // 90, grid_from=TOP)
    for one in found:
        colour, shape = LOOKS[one.where]
        known = [m for m in one.messages if m.bus_bytes_per_second.estimate > 0]
        points = [(x(m.bytes), y(GIGA * m.bus_bytes_per_second.estimate)) for m in known]
        canvas.path(f"M{'L'.join(f'{a:.1f} {b:.1f}' for a, b in points)}", stroke=colour)
        for message, (across, down) in zip(known, points, strict=True):
            low, high = message.bus_bytes_per_second.low, message.bus_bytes_per_second.high
            if low is not None and high is not None and low > 0:
                canvas.line(
                    across, y(GIGA * low), across, y(GIGA * high), stroke=colour, stroke_width=3
                )
            canvas.symbol(shape, across, down, size=3.5, fill="surface", stroke=colour)
    entries = {WHERE[one.where]: LOOKS[one.where][0] for one in found}
    return canvas.drawing(legend(canvas, entries, 16, bottom + AXIS_HEIGHT + 6))


def _rate_scale(rates: Sequence[Interval], bottom: float) -> Scale:
    ends = [GIGA * rate.estimate for rate in rates if rate.estimate > 0]
    ends += [GIGA * end for rate in rates for end in (rate.low, rate.high) if end and end > 0]
    return LogScale(min(ends) / 1.3, max(ends) * 1.3, bottom, TOP)
