"""Charts of what the machine can do and did: rates, workers, load over the run."""

from __future__ import annotations

import altair as alt

from stash.report import words
from stash.report.charts.palette import ACCENT, ALARM, INK, LOOKS, SURFACE
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
from stash.report.facts import iteration_unit, known_rates
from stash.report.figures import size_in_bytes, written
from stash.report.traces import Load, load_over_time, workers
from stash.results.pace import Workers
from stash.results.profile import Profile


def rates_picture(profile: Profile) -> Picture | None:
    """What devices, preprocessing and storage would each sustain alone."""
    told = dict(known_rates(profile.rates))
    if not told:
        return None
    rows: list[Row] = []
    for name, text in told.items():
        rate = getattr(profile.rates, name)
        rows.append(
            {"name": name, "rate": rate.estimate, "low": rate.low, "high": rate.high, "told": text}
        )
    slowest = words.bottleneck(profile.rates)
    return Picture(
        name="rates",
        title=slowest or "What was measured alone",
        words="Samples per second, all workers together: "
        + "; ".join(f"{name} {text}" for name, text in told.items())
        + ".",
        describe=lambda width: _rates(profile, list(told), width),
        rows={"rates": rows},
    )


def _rates(profile: Profile, names: list[str], width: int) -> Specification:
    wide = width > WIDE / 2
    inner = width - (310 if wide else 120)
    look = LOOKS[profile.provenance]
    base = alt.Chart(table("rates"))
    y = alt.Y("name:N", sort=names, axis=alt.Axis(title=None, ticks=False, domain=False))
    x = alt.X("rate:Q", axis=alt.Axis(title="samples per second", tickCount=5))
    bar = base.mark_bar(
        height=20,
        color=ACCENT,
        fillOpacity=look.fill_opacity,
        stroke=INK,
        strokeWidth=1.5 if look.dash else 0,
        strokeDash=look.outline_dash,
    )
    interval = base.mark_rule(strokeWidth=2, color=INK)
    layers = [
        bar.encode(x=x, y=y),
        interval.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=y),
    ]
    if wide:
        told = base.mark_text(align="left", dx=14)
        layers.append(told.encode(x=alt.XValue(inner), y=y, text=alt.Text("told:N")))
    return layered(*layers, width=inner, height={"step": 34})


def workers_picture(profile: Profile) -> Picture | None:
    """Each worker at its own pace: who is slower than the others."""
    found = workers(profile)
    if found is None:
        return None
    unit, factor = iteration_unit(profile)
    rows: list[Row] = []
    for one in found.workers:
        value = one.seconds_per_iteration
        rows.append(
            {
                "worker": one.number,
                "time": value.estimate * factor,
                "low": None if value.low is None else value.low * factor,
                "high": None if value.high is None else value.high * factor,
                "colour": ALARM if one.slow else ACCENT,
            }
        )
    told = [
        f"worker {one.number} {written(one.seconds_per_iteration, unit, factor)}"
        for one in found.workers[:16]
    ]
    more = f"; and {len(found.workers) - 16} more" if len(found.workers) > 16 else ""
    return Picture(
        name="workers",
        title=_workers_title(found, unit, factor),
        words=f"Time per iteration in step {found.step}, where none waits for another: "
        f"{'; '.join(told)}{more}.",
        describe=lambda width: _workers(profile, len(found.workers), width),
        rows={"workers": rows},
    )


def _workers_title(found: Workers, unit: str, factor: float) -> str:
    slow = sorted((one for one in found.workers if one.slow), key=lambda one: -one.lag.estimate)
    if not slow:
        return "No worker is significantly slower than the others"
    lag = written(slow[0].lag, unit, factor)
    others = "" if len(slow) == 1 else f"; {len(slow)} workers are slower than the mean"
    return f"Worker {slow[0].number} is {lag} per iteration slower than the mean{others}"


def _workers(profile: Profile, count: int, width: int) -> Specification:
    unit, _ = iteration_unit(profile)
    look = LOOKS[profile.provenance]
    base = alt.Chart(table("workers"))
    y = alt.Y("worker:O", axis=alt.Axis(title="worker", ticks=False, domain=False))
    scale = alt.Scale(zero=False)
    axis = alt.Axis(title=f"{unit} per iteration", tickCount=5)
    interval = base.mark_rule(strokeWidth=3, strokeDash=look.outline_dash)
    points = base.mark_point(
        size=90, shape=look.shape, opacity=1, fill=ACCENT if look.filled else SURFACE
    )
    layers = [
        interval.encode(
            x=alt.X("low:Q", scale=scale, axis=axis),
            x2=alt.X2("high:Q"),
            y=y,
            color=alt.Color("colour:N", scale=None),
        ),
        points.encode(
            x=alt.X("time:Q", scale=scale), y=y, stroke=alt.Stroke("colour:N", scale=None)
        ),
    ]
    step = 26 if count <= 16 else 14
    return layered(*layers, width=width - 60, height={"step": step})


PANELS = (
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
    rows: list[Row] = [
        {
            "at": round(load.at_seconds, 3),
            **{
                field: None if getattr(load, field) is None else getattr(load, field) * factor
                for field, _, factor in PANELS
            },
        }
        for load in seen
    ]
    shown = [panel for panel in PANELS if any(row[panel[0]] for row in rows)]
    if not shown:
        return None
    return Picture(
        name="load",
        title=_load_title(seen),
        words=_load_words(seen),
        describe=lambda width: _panels(shown, seen[-1].at_seconds, width),
        rows={"load": rows},
    )


def _panels(shown: list[tuple[str, str, float]], end: float, width: int) -> Specification:
    panels = []
    for index, (field, title, _) in enumerate(shown):
        last = index == len(shown) - 1
        axis = alt.Axis(title="seconds since measuring began", grid=False) if last else None
        x = alt.X("at:Q", axis=axis, scale=alt.Scale(domain=[0, max(end, 1e-3)], nice=False))
        area = alt.Chart(table("load")).mark_area(
            line={"color": ACCENT, "strokeWidth": 1.2}, color=ACCENT, fillOpacity=0.18
        )
        y = alt.Y(f"{field}:Q", axis=alt.Axis(title=None, tickCount=3, minExtent=34))
        panels.append(
            layered(area.encode(x=x, y=y), width=width - 62, height=52, title=panel_title(title))
        )
    return stacked(panels, 10)


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
