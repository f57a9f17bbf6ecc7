"""Charts of what the machine can do and did: rates, workers, load over the run."""

from __future__ import annotations

from collections.abc import Sequence

from stash.report import words
from stash.report.charts.drawing import (
    AXIS_HEIGHT,
    Canvas,
    Drawing,
    Scale,
    around,
    axis_below,
    axis_left,
)
from stash.report.charts.palette import LOOKS
from stash.report.charts.picture import WIDE, Picture
from stash.report.facts import iteration_unit, known_rates
from stash.report.figures import size_in_bytes, written
from stash.report.traces import Load, load_over_time, workers
from stash.results.pace import Workers
from stash.results.profile import Profile

ROW_HEIGHT = 34
LOAD_HEIGHT = 52
#: More workers than this are drawn closer together, and not all told in words.
MANY_WORKERS = 16


def rates_picture(profile: Profile) -> Picture | None:
    """What devices, preprocessing and storage would each sustain alone."""
    told = dict(known_rates(profile.rates))
    if not told:
        return None
    slowest = words.bottleneck(profile.rates)
    return Picture(
        name="rates",
        title=slowest or "What was measured alone",
        words="Samples per second, all workers together: "
        + "; ".join(f"{name} {text}" for name, text in told.items())
        + ".",
        draw=lambda width: _rates(profile, told, width),
    )


def _rates(profile: Profile, told: dict[str, str], width: int) -> Drawing:
    wide = width > WIDE / 2
    left, right = 104, width - (190 if wide else 16)
    look = LOOKS[profile.provenance]
    canvas = Canvas(width)
    rates = {name: getattr(profile.rates, name) for name in told}
    reach = [end for rate in rates.values() for end in (rate.estimate, rate.low, rate.high)]
    x = around(reach, left, right, count=5, zero=True)
    bottom = ROW_HEIGHT * len(rates)
    axis_below(canvas, x, bottom, "samples per second", count=5 if wide else 3, grid_from=0)
    for index, (name, rate) in enumerate(rates.items()):
        y = ROW_HEIGHT * (index + 0.5)
        canvas.text(left - 10, y + 4, name, anchor="end")
        canvas.rect(
            x(0),
            y - 10,
            x(rate.estimate) - x(0),
            20,
            fill="accent",
            opacity=look.fill_opacity,
            stroke="ink" if look.dash else None,
            stroke_width=1.5,
            dash=look.dash,
        )
        if rate.low is not None and rate.high is not None:
            canvas.line(x(rate.low), y, x(rate.high), y, stroke="ink", stroke_width=2)
        if wide:
            canvas.text(right + 14, y + 4, told[name])
    return canvas.drawing(bottom + AXIS_HEIGHT)


def workers_picture(profile: Profile) -> Picture | None:
    """Each worker at its own pace: who is slower than the others."""
    found = workers(profile)
    if found is None:
        return None
    unit, factor = iteration_unit(profile)
    told = [
        f"worker {one.number} {written(one.seconds_per_iteration, unit, factor)}"
        for one in found.workers[:MANY_WORKERS]
    ]
    left_out = len(found.workers) - MANY_WORKERS
    more = f"; and {left_out} more" if left_out > 0 else ""
    return Picture(
        name="workers",
        title=_workers_title(found, unit, factor),
        words=f"Time per iteration in step {found.step}, where none waits for another: "
        f"{'; '.join(told)}{more}.",
        draw=lambda width: _workers(profile, found, width),
    )


def _workers_title(found: Workers, unit: str, factor: float) -> str:
    slow = sorted((one for one in found.workers if one.slow), key=lambda one: -one.lag.estimate)
    if not slow:
        return "No worker is significantly slower than the others"
    lag = written(slow[0].lag, unit, factor)
    others = "" if len(slow) == 1 else f"; {len(slow)} workers are slower than the mean"
    return f"Worker {slow[0].number} is {lag} per iteration slower than the mean{others}"


def _workers(profile: Profile, found: Workers, width: int) -> Drawing:
    unit, factor = iteration_unit(profile)
    look = LOOKS[profile.provenance]
    canvas, left = Canvas(width), 84
    times = [one.seconds_per_iteration for one in found.workers]
    reach = [end for time in times for end in (time.estimate, time.low, time.high)]
    scaled = (None if end is None else end * factor for end in reach)
    x = around(scaled, left, width - 16, count=5, zero=False)
    step = 26 if len(times) <= MANY_WORKERS else 14
    bottom = step * len(times)
    axis_below(canvas, x, bottom, f"{unit} per iteration", count=width // 110, grid_from=0)
    for index, one in enumerate(found.workers):
        y, time = step * (index + 0.5), one.seconds_per_iteration
        colour = "alarm" if one.slow else "accent"
        canvas.text(left - 10, y + 4, f"worker {one.number}", anchor="end")
        if time.low is not None and time.high is not None:
            low, high = x(time.low * factor), x(time.high * factor)
            canvas.line(low, y, high, y, stroke=colour, stroke_width=3, dash=look.dash)
        fill = colour if look.filled else "surface"
        canvas.symbol(look.shape, x(time.estimate * factor), y, size=4.5, fill=fill, stroke=colour)
    return canvas.drawing(bottom + AXIS_HEIGHT)


PANELS: tuple[tuple[str, str, float], ...] = (
    ("cpu_percent", "processors busy, %", 1.0),
    ("steal_percent", "taken by other tenants, %", 1.0),
    ("memory_used_bytes", "memory used, GB", 1e-9),
    ("disk_read_bytes_per_second", "read from disks, MB/s", 1e-6),
    ("network_bytes_per_second", "sent on networks, MB/s", 1e-6),
    ("device_busy_percent", "first device busy, %", 1.0),
)


def load_picture(profile: Profile) -> Picture | None:
    """Processors, memory, disks and network over the run, one point a round."""
    seen = load_over_time(profile)
    if len(seen) < 2:
        return None
    shown = [panel for panel in PANELS if any(getattr(load, panel[0]) for load in seen)]
    if not shown:
        return None
    return Picture(
        name="load",
        title=_load_title(seen),
        words=_load_words(seen),
        draw=lambda width: _load(shown, seen, width),
    )


def _load(shown: Sequence[tuple[str, str, float]], seen: list[Load], width: int) -> Drawing:
    left, right = 58, width - 12
    x = Scale(0.0, max(seen[-1].at_seconds, 1e-3), left, right)
    canvas, y = Canvas(width), 0.0
    for name, title, factor in shown:
        canvas.text(left, y + 20, title)
        y += 30
        values = [(load.at_seconds, getattr(load, name)) for load in seen]
        known = [(at, value * factor) for at, value in values if value is not None]
        scale = around((value for _, value in known), y + LOAD_HEIGHT, y, count=3, zero=True)
        axis_left(canvas, scale, left, right - left)
        canvas.area([(x(at), scale(v)) for at, v in known], y + LOAD_HEIGHT, colour="accent")
        y += LOAD_HEIGHT
    axis_below(canvas, x, y, "seconds since measuring began", count=width // 80)
    return canvas.drawing(y + AXIS_HEIGHT)


def _means(seen: list[Load]) -> tuple[float, float]:
    count = len(seen)
    return (
        sum(load.cpu_percent for load in seen) / count,
        sum(load.steal_percent for load in seen) / count,
    )


def _load_title(seen: list[Load]) -> str:
    busy, stolen = _means(seen)
    return (
        f"Processors were {busy:.0f} % busy; other tenants took {stolen:.1f} %"
        if stolen >= 0.05
        else f"Processors were {busy:.0f} % busy; other tenants took nothing"
    )


def _load_words(seen: list[Load]) -> str:
    memory = size_in_bytes(max(load.memory_used_bytes for load in seen))
    disk = size_in_bytes(max(load.disk_read_bytes_per_second for load in seen))
    sent = size_in_bytes(max(load.network_bytes_per_second for load in seen))
    return (
        f"Means over each of {len(seen)} rounds. At most {memory} of memory were used, {disk} "
        f"read from disks and {sent} sent on networks a second."
    )
