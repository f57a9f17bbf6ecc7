"""Every block time over the run, so that drift and outliers are seen."""

from __future__ import annotations

import altair as alt

from stash.report.characters import harmless
from stash.report.charts.palette import ACCENT, ALARM, GRID, LOOKS
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
from stash.report.facts import iteration_unit, steps_in_order
from stash.report.figures import percentage, written
from stash.report.traces import at_seconds, drift
from stash.results.profile import Profile, StepResult, whole_step
from stash.results.steps import STEP_BY_NAME

PANEL_HEIGHT = 74
MAX_PANELS = 12


def blocks_picture(profile: Profile) -> Picture | None:
    """Block times of every step, with the step's estimate and interval."""
    steps = [(name, step) for name, step in steps_in_order(profile) if step.blocks][:MAX_PANELS]
    if not steps:
        return None
    return Picture(
        name="blocks",
        title=_title(profile),
        words=_words(profile, steps),
        describe=lambda width: _panels(profile, steps, width),
        rows=_rows(profile, steps),
    )


def _rows(profile: Profile, steps: list[tuple[str, StepResult]]) -> dict[str, list[Row]]:
    """Dots by step, and each step's estimate.

    Between two dots stands a gap: the dots of a step are then one line of points without length,
    which is drawn as one shape however many there are.
    """
    _, factor = iteration_unit(profile)
    when = at_seconds(profile)
    rows: dict[str, list[Row]] = {}
    for index, (_, step) in enumerate(steps):
        dots: list[Row] = []
        for block in step.blocks:
            if any(seconds is not None for seconds in block.seconds):
                at = round(when(block), 3)
                dots.append({"at": at, "time": block.seconds_per_iteration * factor})
                dots.append({"at": at, "time": None})
        rows[f"dots{index}"] = dots
        value = step.seconds_per_iteration
        ends = (value.low, value.high)
        low, high = (value.estimate if end is None else end for end in ends)
        rows[f"step{index}"] = [
            {"time": value.estimate * factor, "low": low * factor, "high": high * factor}
        ]
    return rows


def _panels(profile: Profile, steps: list[tuple[str, StepResult]], width: int) -> Specification:
    unit, _ = iteration_unit(profile)
    wide = width > WIDE / 2
    inner = width - 62
    when = at_seconds(profile)
    end = max(when(block) for _, step in steps for block in step.blocks)
    look = LOOKS[profile.provenance]
    panels = []
    for index, (name, _) in enumerate(steps):
        last = index == len(steps) - 1
        axis = alt.Axis(title="seconds since measuring began", grid=False) if last else None
        x = alt.X("at:Q", axis=axis, scale=alt.Scale(domain=[0, max(end, 1e-3)], nice=False))
        y = alt.Y(
            "time:Q",
            scale=alt.Scale(zero=False),
            axis=alt.Axis(title=unit, tickCount=3, minExtent=34),
        )
        level = alt.Chart(table(f"step{index}"))
        band = level.mark_rect(color=GRID).encode(
            y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), x=alt.XValue(0), x2=alt.X2Value(inner)
        )
        line = level.mark_rule(color=ALARM, strokeWidth=1.5, strokeDash=look.outline_dash).encode(
            y=y
        )
        dots = alt.Chart(table(f"dots{index}")).mark_line(
            strokeCap="round", strokeWidth=4, opacity=0.6, color=ACCENT
        )
        panels.append(
            layered(
                band,
                dots.encode(x=x, y=y),
                line,
                width=inner,
                height=PANEL_HEIGHT,
                title=panel_title(_panel_title(name, wide)),
            )
        )
    return stacked(panels, 10)


def _panel_title(name: str, wide: bool) -> str:
    known = STEP_BY_NAME.get(name)
    shown = harmless(name, limit=24)
    return f"{shown}: {known.meaning}" if known is not None and wide else shown


def _title(profile: Profile) -> str:
    change = drift(profile)
    whole = whole_step(profile)
    if change is None or change.low is None or change.high is None:
        return "Too few rounds to tell whether the machine drifted"
    told = f"step {whole} took {percentage(change)} more time in the second half of the run"
    if change.low <= 0 <= change.high:
        return f"No drift to be seen: {told}"
    return f"The machine became {'slower' if change.estimate > 0 else 'faster'}: {told}"


def _words(profile: Profile, steps: list[tuple[str, StepResult]]) -> str:
    unit, factor = iteration_unit(profile)
    told = [
        f"{harmless(name, limit=24)} {written(step.seconds_per_iteration, unit, factor)} "
        f"in {len(step.blocks)} blocks"
        for name, step in steps
    ]
    return (
        "One dot a block, time per iteration of its slowest worker; line and band: the step's "
        f"estimate and interval. {'; '.join(told)}."
    )
