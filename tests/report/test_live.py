"""Progress: what is shown while a run measures, on a clock that moves only when told to."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import partial

import pytest
from rich.console import Console

from profiles import HAND_WORKED, noisy, rounds_of
from stash.report import live
from stash.results.estimates import Times
from stash.results.recording import Round

ROUNDS = rounds_of([noisy(HAND_WORKED, rounds=40)])


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


#: Drawing costs nothing: how long it takes on this machine must not decide what is drawn.
Progress = partial(live.Progress, cpu_clock=Clock())


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)


def shown(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def test_outside_a_terminal_every_phase_is_a_line() -> None:
    on, clock = console(terminal=False), Clock()
    with Progress(on, max_seconds=600, price_usd_per_hour=36.0, clock=clock) as progress:
        progress.limits_begin()
        progress.phase("calibrating")
        clock.now += 60
        progress.phase("measuring")
    assert shown(on).splitlines() == [
        "stash: calibrating; 0 s ($0.00) so far, at most 10 min ($6.00) to go",
        "stash: measuring; 60 s ($0.60) so far, at most 9.0 min ($5.40) to go",
    ]


def test_outside_a_terminal_rounds_are_a_line_every_ten_seconds() -> None:
    on, clock = console(terminal=False), Clock()
    with Progress(on, half_width_asked=0.03, clock=clock) as progress:
        for count in range(1, 31):
            progress.round(ROUNDS[:count])
            clock.now += 1
    lines = shown(on).splitlines()
    assert [re.match(r"stash: (\d+ rounds?)", line)[1] for line in lines] == [  # type: ignore[index]
        "1 round", "11 rounds", "21 rounds",
    ]  # fmt: skip
    assert "no intervals yet" in lines[0]
    assert re.search(
        r"widest half-width [\d.]+ % of an iteration, 3 % asked; 10 s so far, about [\d.]+ s to go",
        lines[1],
    )


def test_in_a_terminal_every_stall_is_shown_with_its_interval() -> None:
    on, clock = console(terminal=True), Clock()
    with Progress(on, max_seconds=120, clock=clock) as progress:
        progress.phase("measuring")
        progress.round(ROUNDS)
        text = shown(on)
    for name in ("contention", "communication", "prep", "fetch"):
        assert re.search(rf"{name} +[\d.]+ ms +\([\d.]+ to [\d.]+\)", text), name
    assert "measuring: 40 rounds; 0 s so far, at most 2.0 min to go" in text


def test_intervals_are_seen_to_shrink() -> None:
    on, clock = console(terminal=True), Clock()
    with Progress(on, clock=clock) as progress:
        for count in (5, 40):
            progress.round(ROUNDS[:count])
            clock.now += 2
        text = shown(on)
    found = re.findall(r"prep .*\+-([\d.]+) ms, at first ([\d.]+)", text)
    assert found[0][0] == found[0][1] == found[-1][1]
    assert float(found[-1][0]) < float(found[-1][1]) / 2


def test_what_is_to_come_follows_from_how_fast_intervals_shrink() -> None:
    """Half-widths shrink with the root of the rounds: half as wide takes four times as many."""
    on, clock = console(terminal=False), Clock()
    asked = (Times.of(ROUNDS[:10]).widest_half_width() or 0.0) / 2
    with Progress(
        on, half_width_asked=asked, max_seconds=100, price_usd_per_hour=36.0, clock=clock
    ) as progress:
        progress.limits_begin()
        progress.round(ROUNDS[:1])
        clock.now += 18  # nine rounds of two seconds
        progress.round(ROUNDS[:10])
    last = shown(on).splitlines()[-1]
    assert last.endswith("18 s ($0.18) so far, about 60 s ($0.60) to go, at most 82 s ($0.82)")


def test_a_run_is_not_expected_to_end_before_its_least_rounds() -> None:
    on, clock = console(terminal=False), Clock()
    with Progress(on, half_width_asked=10.0, min_rounds=20, clock=clock) as progress:
        progress.round(ROUNDS[:1])
        clock.now += 18
        progress.round(ROUNDS[:10])
    assert shown(on).splitlines()[-1].endswith("about 20 s to go")


def test_money_may_run_out_before_time() -> None:
    on = console(terminal=False)
    with Progress(
        on, max_seconds=600, max_usd=0.5, price_usd_per_hour=36.0, clock=Clock()
    ) as progress:
        progress.phase("calibrating")
    assert "at most 50 s ($0.50) to go" in shown(on)


def test_drawing_takes_no_more_than_a_hundredth_of_a_core() -> None:
    clock, spent = Clock(), 0.0

    def cpu_clock() -> float:
        nonlocal spent
        spent += 1 / 32  # each look at it; an update looks twice
        return spent

    with Progress(console(terminal=True), clock=clock, cpu_clock=cpu_clock) as progress:
        for count in range(1, 41):
            progress.round(ROUNDS[:count])
            clock.now += 1.0
    assert round(spent * 16) == 10, "each took 1/32 s, so more than three seconds lie between two"


def test_estimates_are_computed_no_more_than_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[int] = []
    honest = Times.of

    def counted(rounds: Sequence[Round]) -> Times:
        computed.append(len(rounds))
        return honest(rounds)

    monkeypatch.setattr(Times, "of", counted)
    clock = Clock()
    with Progress(console(terminal=True), clock=clock) as progress:
        for count in range(1, 41):
            progress.round(ROUNDS[:count])
            clock.now += 0.25
    assert computed == list(range(1, 41, 4))


def test_time_passes_on_the_screen_until_workers_run() -> None:
    on, clock = console(terminal=True), Clock()
    with Progress(on, max_seconds=120, clock=clock) as progress:
        progress.phase("preparing")
        clock.now += 5
        progress.tick()
        assert "5.0 s so far" in shown(on)
        progress.limits_begin()
        progress.phase("loader rates")
        clock.now += 5
        before = shown(on)
        progress.tick()
        assert shown(on) == before


def test_limits_count_from_the_first_iteration() -> None:
    on, clock = console(terminal=False), Clock()
    with Progress(on, max_seconds=60, clock=clock) as progress:
        clock.now += 30
        progress.phase("starting workers")
        progress.limits_begin()
        clock.now += 20
        progress.limits_begin()
        progress.phase("measuring")
    first, second = shown(on).splitlines()
    assert first.endswith("30 s so far, at most 60 s to go")
    assert second.endswith("50 s so far, at most 40 s to go")


def test_time_to_go_is_never_negative() -> None:
    on, clock = console(terminal=False), Clock()
    with Progress(on, max_seconds=10, clock=clock) as progress:
        progress.limits_begin()
        clock.now += 60
        progress.phase("closing")
    assert "at most 0 s to go" in shown(on)


def test_names_of_phases_are_harmless() -> None:
    on = console(terminal=False)
    with Progress(on, clock=Clock()) as progress:
        progress.phase("\x1b[31m[red]")
    assert "\x1b" not in shown(on) and "\\x1b[31m[red]" in shown(on)
