"""What many repeats of two methods come to: how far off each was, and after how long."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any


def summaries(lines: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For every case, quiet or not: errors and times of both methods over all repeats."""
    for case, bursts in sorted({(line["case"], line["bursts"]) for line in lines}):
        yield summary([line for line in lines if (line["case"], line["bursts"]) == (case, bursts)])


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One case: how far each method was off, and when Stash was as near as the other."""
    truth = lines[0]["truth"]
    reference = [line["reference"] for line in lines]
    stash = [line["stash"]["after_rounds"] for line in lines]
    at_end = [rounds[-1] for rounds in stash]
    return {
        "case": lines[0]["case"],
        "bursts": lines[0]["bursts"],
        "repeats": len(lines),
        "truth_ms": {name: _ms(value) for name, value in truth.items()},
        "reference": _method(reference, truth),
        "stash": {
            **_method(at_end, truth),
            "rounds": _mean([len(rounds) for rounds in stash]),
            "half_width_ms": {
                name: _ms(_mean([one["half_widths"][name] for one in at_end])) for name in truth
            },
            "inside_interval": {
                name: sum(_holds(o, name, truth) for o in at_end) for name in truth
            },
        },
        "stash_at_the_error_of_the_reference": _soonest(stash, reference, truth),
    }


def _method(answers: Sequence[dict[str, Any]], truth: dict[str, float]) -> dict[str, Any]:
    values = {name: [answer["stalls"][name] for answer in answers] for name in truth}
    return {
        "seconds": round(_mean([answer["seconds"] for answer in answers]), 2),
        "seconds_without_start": round(
            _mean([answer["seconds_without_start"] for answer in answers]), 2
        ),
        "mean_error_ms": {n: _ms(_mean(v) - truth[n]) for n, v in values.items()},
        "rms_error_ms": {n: _ms(_rms(v, truth[n])) for n, v in values.items()},
        "spread_ms": {n: _ms(_rms(v, _mean(v))) for n, v in values.items()},
    }


def _soonest(
    stash: Sequence[Sequence[dict[str, Any]]],
    reference: Sequence[dict[str, Any]],
    truth: dict[str, float],
) -> dict[str, Any] | None:
    """After how many rounds, and how much time, Stash's error of every stall is no larger."""
    wanted = {n: _rms([answer["stalls"][n] for answer in reference], truth[n]) for n in truth}
    for number in range(min(len(rounds) for rounds in stash)):
        then = [rounds[number] for rounds in stash]
        errors = {n: _rms([one["stalls"][n] for one in then], truth[n]) for n in truth}
        if all(errors[name] <= wanted[name] for name in truth):
            return {
                "rounds": number + 1,
                **{
                    f"{key}_over_reference": round(
                        _mean([one[key] for one in then]) / _mean([one[key] for one in reference]),
                        3,
                    )
                    for key in ("seconds", "seconds_without_start")
                },
            }
    return None


def _holds(answer: dict[str, Any], name: str, truth: dict[str, float]) -> bool:
    return abs(answer["stalls"][name] - truth[name]) <= answer["half_widths"][name]


def _rms(values: Sequence[float], truth: float) -> float:
    return math.sqrt(_mean([(value - truth) ** 2 for value in values]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)
