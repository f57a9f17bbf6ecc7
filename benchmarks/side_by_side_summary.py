"""What many repeats of two methods come to: how far off each was, and after how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
#: Fewer drawn again tell nothing.
MIN_REPEATS = 10

Array = NDArray[np.float64]
#: How large many errors are together, along the last axis.
Size = Callable[[Array], Array]


def summaries(lines: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For every case, quiet or not: errors and times of both methods over all repeats."""
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["case"], line["bursts"]), []).append(line)
    for _, alike in sorted(groups.items()):
        yield summary(alike)


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One case: how far each method was off, and what Stash's error and time are of the other's.

    Answers are told by the iterations, or rounds, after which they were given, and by in how many
    repeats they were. Stash's are held against the other's last of the same repeats.
    """
    truth = lines[0]["truth"]
    assert all(line["truth"] == truth for line in lines), "repeats of several worlds"
    reference = _answers([line["reference"] for line in lines])
    stash = _answers([line["stash"] for line in lines])
    last = list(reference.values())[-1]
    return {
        "case": lines[0]["case"],
        "bursts": lines[0]["bursts"],
        "repeats": len(lines),
        "truth_ms": {name: _ms(value) for name, value in truth.items()},
        "reference": {
            count: _errors(list(answers.values()), truth) for count, answers in reference.items()
        },
        "stash": {
            count: {
                **_errors(list(answers.values()), truth),
                **_intervals(list(answers.values()), truth),
            }
            for count, answers in stash.items()
        },
        "stash_over_reference": {
            count: _over(list(answers.values()), [last[repeat] for repeat in answers], truth)
            for count, answers in stash.items()
        },
    }


def _answers(repeats: Sequence[dict[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    """By count and by repeat, all answers, each with the seconds until it was there.

    Not every repeat has an answer of every count: which are kept has changed.
    """
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for repeat, one in enumerate(repeats):
        whole = list(one["answers"].values())[-1]["seconds_without_start"]
        for count, answer in one["answers"].items():
            seconds = one["seconds"] - whole + answer["seconds_without_start"]
            found.setdefault(count, {})[repeat] = {**answer, "seconds": seconds}
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def _over(
    stash: Sequence[dict[str, Any]],
    reference: Sequence[dict[str, Any]],
    truth: dict[str, float],
) -> dict[str, Any]:
    """Stash's time and errors as parts of the other's, in the same repeats."""
    return {
        **{
            key: round(_mean([one[key] for one in stash]) / _mean([o[key] for o in reference]), 3)
            for key in ("seconds", "seconds_without_start")
        },
        **{
            f"{kind}_error": {
                name: _error_ratio(stash, reference, name, truth, size) for name in truth
            }
            for kind, size in SIZES.items()
        },
    }


def _error_ratio(
    stash: Sequence[dict[str, Any]],
    reference: Sequence[dict[str, Any]],
    name: str,
    truth: dict[str, float],
    size: Size,
) -> list[float | None]:
    """Stash's error over the other's, with a 95 % interval: repeats are drawn again, in pairs."""
    ours, others = (
        np.array([one["stalls"][name] - truth[name] for one in answers])
        for answers in (stash, reference)
    )
    ratio = _ratio(ours, others, size)
    if len(ours) < MIN_REPEATS:
        return [round(float(ratio), 3), None, None]
    drawn = np.random.default_rng(0).integers(len(ours), size=(DRAWS, len(ours)))
    ratios = _ratio(ours[drawn], others[drawn], size)
    low, high = np.quantile(ratios, (0.025, 0.975), method="nearest")  # they may be infinite
    return [round(float(value), 3) for value in (ratio, low, high)]


def _ratio(ours: Array, others: Array, size: Size) -> Array:
    """Infinite where the others have no error at all."""
    own, other = size(ours), size(others)
    return np.divide(own, other, out=np.full_like(own, np.inf), where=other > 0)


def _errors(answers: Sequence[dict[str, Any]], truth: dict[str, float]) -> dict[str, Any]:
    errors = {name: [answer["stalls"][name] - truth[name] for answer in answers] for name in truth}
    return {
        "repeats": len(answers),
        **{
            key: round(_mean([answer[key] for answer in answers]), 2)
            for key in ("seconds", "seconds_without_start")
        },
        "mean_error_ms": {name: _ms(_mean(own)) for name, own in errors.items()},
        **{
            f"{kind}_error_ms": {
                name: _ms(float(size(np.array(own)))) for name, own in errors.items()
            }
            for kind, size in SIZES.items()
        },
    }


def _intervals(answers: Sequence[dict[str, Any]], truth: dict[str, float]) -> dict[str, Any]:
    return {
        "half_width_ms": {n: _ms(_mean([o["half_widths"][n] for o in answers])) for n in truth},
        "inside_interval": {n: sum(_holds(o, n, truth) for o in answers) for n in truth},
    }


def _holds(answer: dict[str, Any], name: str, truth: dict[str, float]) -> bool:
    return abs(answer["stalls"][name] - truth[name]) <= answer["half_widths"][name]


def _rms(errors: Array) -> Array:
    return np.sqrt(np.mean(errors**2, axis=-1))


def _middle(errors: Array) -> Array:
    return np.median(np.abs(errors), axis=-1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


#: Root mean square, which the worst repeats make; and what half of the repeats stay below.
SIZES: dict[str, Size] = {"rms": _rms, "middle": _middle}
