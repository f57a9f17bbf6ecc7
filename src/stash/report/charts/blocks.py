"""Every block time over the run, so that drift and outliers are seen."""

from __future__ import annotations

from functools import partial

from stash.report.characters import harmless
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
from stash.report.facts import iteration_unit, steps_in_order
from stash.report.figures import percentage, written
from stash.report.traces import at_seconds, drift
from stash.results.profile import Profile, StepResult
from stash.results.steps import STEP_BY_NAME
from stash.results.whole import whole_step

PANEL_HEIGHT = 74
TITLE_HEIGHT = 32
LEFT, RIGHT = 58, 12
MAX_PANELS = 12

#: When a block was measured, and its seconds per iteration.
Dot = tuple[float, float]


def blocks_picture(profile: Profile) -> Picture | None:
    """Block times of every step, with the step's estimate and interval."""
    steps = [(name, step) for name, step in steps_in_order(profile) if step.blocks][:MAX_PANELS]
    if not steps:
        return None
    return Picture(
        name="blocks",
        title=_title(profile),
        words=_words(profile, steps),
        draw=partial(
            _panels, profile, [(name, step, _dots(profile, step)) for name, step in steps]
        ),
    )


def _dots(profile: Profile, step: StepResult) -> list[Dot]:
    when = at_seconds(profile)
    return [
        (when(block), block.seconds_per_iteration)
        for block in step.blocks
        if any(seconds is not None for seconds in block.seconds)
    ]


def _panels(
    profile: Profile, steps: list[tuple[str, StepResult, list[Dot]]], width: int
) -> Drawing:
    end = max((at for *_, dots in steps for at, _ in dots), default=0.0)
    x = Scale(0.0, max(end, 1e-3), LEFT, width - RIGHT)
    canvas, y = Canvas(width), 0.0
    for name, step, dots in steps:
        canvas.text(LEFT, y + 22, _panel_title(name, wide=width > WIDE / 2))
        y += TITLE_HEIGHT
        _panel(canvas, profile, step, dots, x, y)
        y += PANEL_HEIGHT
    axis_below(canvas, x, y, "seconds since measuring began", count=width // 80)
    return canvas.drawing(y + AXIS_HEIGHT)


def _panel(
    canvas: Canvas,
    profile: Profile,
    step: StepResult,
    dots: list[Dot],
    x: Scale,
    top: float,
) -> None:
    """One step: its interval as a band, every block as a dot, its estimate as a line."""
    unit, factor = iteration_unit(profile)
    value = step.seconds_per_iteration
    low = value.estimate if value.low is None else value.low
    high = value.estimate if value.high is None else value.high
    times = [low, high, *(seconds for _, seconds in dots)]
    y = around((time * factor for time in times), top + PANEL_HEIGHT, top, count=3, zero=False)
    axis_left(canvas, y, LEFT, x.end - LEFT, unit)
    canvas.rect(
        LEFT, y(low * factor), x.end - LEFT, y(high * factor) - y(low * factor), fill="grid"
    )
    canvas.dots(((x(at), y(seconds * factor)) for at, seconds in dots), colour="accent")
    middle = y(value.estimate * factor)
    dash = LOOKS[profile.provenance].dash
    canvas.line(LEFT, middle, x.end, middle, stroke="alarm", stroke_width=1.5, dash=dash)


def _panel_title(name: str, *, wide: bool) -> str:
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
