"""The predictor against other people's measurements, and against two simpler predictions.

    python benchmarks/validate_predictor.py --data FOLDER [--json] [--fits FILE]

Every row is predicted by constants that were fitted without its source (and, for unseen models,
without its model). Two settings: *calibrated*, where the source's row of one GPU is known, and
*blind*, from specifications alone. Fits are kept in FILE, so that an interrupted run goes on. With
`--json` the last lines are one a kind; sources, parts, bands and constants come before.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import predictor_fit
import predictor_parts
import public_rows
from predictor_fit import Cases
from public_rows import Row

from stash.predict.communication import Links, plain_seconds
from stash.predict.constants import Constants
from stash.predict.uncertainty import Band

KINDS = {
    "one": "one node against one GPU",
    "same": "several nodes against one with as many GPUs",
    "weak": "several nodes against one of them",
}
BLIND_KINDS = {"solo": "one GPU", "one": "one node", "nodes": "several nodes"}
LARGE_STALL = 10.0  # points
MIN_PAIR_DIFFERENCE = 0.10
#: Tails that are tried for the intervals, in this order: the first with which intervals hold on
#: nine of ten rows of sources that they do not know.
TAILS = (0.05, 0.04, 0.03, 0.02, 0.01, 0.005, 0.0)
ASKED_COVERAGE = 90.0
SHARES = (0.03, 0.10, 0.25, 1.0)
MIN_BAND_ROWS = 30


@dataclass(frozen=True)
class Score:
    """One row predicted: seconds per iteration, and points of stall."""

    row: Row
    kind: str
    measured: float
    predicted: float
    plain: float
    perfect: float
    stall: float
    predicted_stall: float
    plain_stall: float
    share: float  # of the predicted time that is exchange

    @property
    def error(self) -> float:
        """Of throughput, signed, in percent."""
        return 100 * (self.measured / self.predicted - 1)


class Fits:
    """Constants fitted to all rows but some, kept in a file."""

    def __init__(self, rows: dict[str, Row], path: Path | None) -> None:
        self._rows, self._path = rows, path
        self._kept: dict[str, dict] = {}
        if path is not None and path.is_file():
            self._kept = json.loads(path.read_text("utf-8"))

    def without(self, key: str, value: str) -> Constants:
        name = f"{key}={value}"
        if name not in self._kept:
            others = {i: r for i, r in self._rows.items() if getattr(r, key, None) != value}
            self._kept[name] = asdict(predictor_fit.fit(others))
            if self._path is not None:
                self._path.write_text(json.dumps(self._kept, indent=1), "utf-8")
        return Constants(**self._kept[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--fits", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = validate(options.data, options.fits)
    lines = result.pop("lines")
    if not options.json:
        for line in [*lines, *result["sources"], *result["parts"]]:
            print(line)
        return
    print(json.dumps(result, indent=1, default=str))
    for line in lines:
        print(json.dumps(line))


def validate(data: Path, fits_path: Path | None = None) -> dict:
    """All that docs/validation.md tells."""
    rows, left_out = public_rows.read(data)
    fits = Fits(rows, fits_path)
    fits.without("source", "none")
    calibrated = calibrated_scores(rows, fits)
    blind = blind_scores(rows, fits, "source")
    unseen = blind_scores(rows, fits, "model")
    over_solo = relative_scores(rows, blind)
    left_out_by_value = public_rows.flagged(data, public_rows.FLAG_BY_VALUE)
    with_all = calibrated + calibrated_scores(rows, fits, left_out_by_value)
    bands = {
        "calibrated node": [s for s in calibrated if s.kind == "one"],
        "calibrated nodes": [s for s in calibrated if s.kind != "one"],
        "blind solo": [s for s in blind if s.row.workers == 1],
        "blind node": [s for s in blind if s.row.nodes == 1 and s.row.workers > 1],
        "blind nodes": [s for s in blind if s.row.nodes > 1],
        "blind over solo node": [s for s in over_solo if s.kind == "one"],
        "blind over solo nodes": [s for s in over_solo if s.kind == "nodes"],
    }
    lines = []
    for kind in KINDS:
        known = bands["calibrated node" if kind == "one" else "calibrated nodes"]
        here = [s for s in calibrated if s.kind == kind]
        lines.append(summary(f"calibrated {kind}", here, known))
        here = [s for s in with_all if s.kind == kind]
        name = f"calibrated {kind}, with flag {public_rows.FLAG_BY_VALUE}"
        lines.append(summary(name, here, known))
    for kind, name in (("solo", "solo"), ("one", "node"), ("nodes", "nodes")):
        here = bands[f"blind {name}"]
        lines.append(summary(f"blind {kind}", here, here))
        without = [s for s in here if not s.row.has_slow_single]
        lines.append(summary(f"blind {kind}, without {public_rows.SLOW_SINGLE}", without, here))
    for kind, name in (("one", "node"), ("nodes", "nodes")):
        here = bands[f"blind over solo {name}"]
        lines.append(summary(f"blind stall {kind}", here, here))
    lines.append(summary("blind, model unseen", unseen, None))
    lines.append(stall_seconds(bands["blind over solo node"], bands["blind solo"]))
    lines.append(pairs(blind))
    return {
        "rows": len(rows),
        "left_out": dict(left_out),
        "left_out_by_value": len(left_out_by_value),
        "by_source": dict(Counter(r.source for r in rows.values())),
        "flags_left_out": public_rows.LEFT_OUT_FLAGS,
        "trust": public_rows.TRUSTED,
        "sources": [
            *by_source("calibrated", calibrated, KINDS),
            *by_source("blind", blind, BLIND_KINDS),
        ],
        "parts": [*predictor_parts.all_reduce(data), *predictor_parts.layers(data)],
        "constants": asdict(fits.without("source", "none")),
        "constants_without_slow_single": asdict(fits.without("source", public_rows.SLOW_SINGLE)),
        "bands": {
            name: [asdict(b) for b in make_bands(scores, tail(scores))]
            for name, scores in bands.items()
        },
        "tails": {name: tail(scores) for name, scores in bands.items()},
        "calibrated": calibrated,
        "blind": blind,
        "unseen": unseen,
        "lines": lines,
    }


def calibrated_scores(
    rows: dict[str, Row], fits: Fits, others: dict[str, Row] | None = None
) -> list[Score]:
    """Every row of several GPUs (or others beside them), by constants without its source."""
    asked = rows if others is None else others
    chosen = [r for r in {**rows, **asked}.values() if r.workers > 1 and r.single in rows]
    predicted: dict[str, float] = {}
    plain: dict[str, float] = {}
    for source in sorted({row.source for row in chosen}):
        here = [row for row in chosen if row.source == source]
        alone = np.array([rows[row.single].seconds for row in here])
        constants = fits.without("source", source)
        seconds = Cases(here, alone, constants).seconds(constants)
        predicted |= {r.id: float(s) for r, s in zip(here, seconds, strict=True)}
        simple = alone + _plain(here, constants)
        plain |= {r.id: float(s) for r, s in zip(here, simple, strict=True)}
    return [
        _score(row, kind, base, predicted, plain, on_base=row.has_slow_single)
        for row, kind, base in _compared(asked, rows)
    ]


def relative_scores(rows: dict[str, Row], blind: list[Score]) -> list[Score]:
    """Rows of several GPUs over their row of one, both from specifications.

    Where that row is slow they are taken over their row of one node.
    """
    predicted = {s.row.id: s.predicted for s in blind}
    plain = {s.row.id: s.plain for s in blind}
    share = {s.row.id: s.share for s in blind}
    scores = []
    for row in rows.values():
        base = rows.get((predictor_fit.node_row(row) if row.has_slow_single else row.single) or "")
        if row.workers > 1 and base is not None:
            kind = "one" if row.nodes == 1 else "nodes"
            score = _score(row, kind, base, predicted, plain, on_base=True)
            scores.append(replace(score, share=share[row.id]))
    return scores


def _compared(chosen: dict[str, Row], rows: dict[str, Row]) -> Iterator[tuple[Row, str, Row]]:
    """Rows of several GPUs with the kind of comparison and the row that they are compared with."""
    for row in chosen.values():
        if row.workers == 1 or row.single not in rows:
            continue
        if row.nodes == 1 and not row.has_slow_single:
            yield row, "one", rows[row.single]
        for kind in ("same", "weak"):
            reference = rows.get(getattr(row, kind) or "")
            slow = row.has_slow_single and reference is not None and reference.workers == 1
            if row.nodes > 1 and reference is not None and not slow:
                yield row, kind, reference


def _score(row: Row, kind: str, base: Row, predicted: dict, plain: dict, *, on_base: bool) -> Score:
    def of(seconds: dict[str, float], one: Row) -> float:
        return seconds.get(one.id, one.seconds)  # a row of one GPU is known

    ratio = of(predicted, row) / of(predicted, base)
    plain_ratio = of(plain, row) / of(plain, base)
    return Score(
        row=row,
        kind=kind,
        measured=row.seconds,
        predicted=base.seconds * ratio if on_base else of(predicted, row),
        plain=base.seconds * plain_ratio if on_base else of(plain, row),
        perfect=base.seconds,
        stall=100 * (row.seconds / base.seconds - 1),
        predicted_stall=100 * (ratio - 1),
        plain_stall=100 * (plain_ratio - 1),
        share=1 - 1 / ratio,
    )


def blind_scores(rows: dict[str, Row], fits: Fits, left_out: str) -> list[Score]:
    """Every row from specifications, by constants that do not know its source, or its model."""
    scores = []
    for value in sorted({getattr(row, left_out) for row in rows.values()}):
        here = [row for row in rows.values() if getattr(row, left_out) == value]
        constants = fits.without(left_out, value)
        alone = predictor_fit.alone_seconds(here, constants)
        seconds = Cases(here, alone, constants).seconds(constants)
        plain = alone + _plain(here, constants)
        for row, base, whole, simple in zip(here, alone, seconds, plain, strict=True):
            single = rows.get(row.single or "")
            true_base = single.seconds if single is not None else row.seconds
            kind = "solo" if row.workers == 1 else "one" if row.nodes == 1 else "nodes"
            scores.append(
                Score(
                    row,
                    kind,
                    row.seconds,
                    float(whole),
                    float(simple),
                    float(base),
                    100 * (row.seconds / true_base - 1),
                    100 * (whole / base - 1),
                    100 * (simple / base - 1),
                    float(1 - base / whole),
                )
            )
    return scores


def _plain(rows: list[Row], constants: Constants) -> np.ndarray:
    links = Links.of([r.inside for r in rows], [r.between for r in rows], constants)
    facts = [predictor_fit.facts_of(r.model, r.length) for r in rows]
    sent = np.array([len(one.gradients) for one in facts])
    size = np.array(
        [one.gradient_bytes / 4 * r.bytes_per_element for one, r in zip(facts, rows, strict=True)]
    )
    per_node = np.array([float(r.gpus_per_node) for r in rows])
    nodes = np.array([float(r.nodes) for r in rows])
    return plain_seconds(sent, size, per_node, nodes, links)


def tail(scores: list[Score]) -> float:
    """The tail that makes intervals hold as often as they say, on sources left out."""
    found = (one for one in TAILS if (coverage(scores, scores, one) or 0.0) >= ASKED_COVERAGE)
    return next(found, TAILS[-1])


def make_bands(scores: list[Score], tail: float) -> list[Band]:
    """Bounds of measured over predicted time, by the share of exchange; every source weighs the
    same. Shares with few rows are joined with the ones below."""
    groups: list[tuple[float, list[Score]]] = []
    lowest = -np.inf
    for limit in SHARES:
        here = [s for s in scores if lowest < s.share <= limit]
        lowest = limit
        if groups and len(here) < MIN_BAND_ROWS:
            groups[-1] = (limit, groups[-1][1] + here)
        else:
            groups.append((limit, here))
    return [Band(limit, *_bounds(here, tail)) for limit, here in groups if here]


def _bounds(scores: list[Score], tail: float) -> tuple[float, float]:
    count = Counter(s.row.source for s in scores)
    order = sorted(scores, key=lambda s: s.measured / s.predicted)
    ratios = np.array([s.measured / s.predicted for s in order])
    weight = np.array([1 / count[s.row.source] for s in order])
    at = (np.cumsum(weight) - weight / 2) / weight.sum()
    low, high = np.interp((tail, 1 - tail), at, ratios)
    return float(low), float(high)


def coverage(scores: list[Score], known: list[Score], tail: float) -> float | None:
    """How often intervals made from the other sources' errors hold, in percent.

    None where there is no row, or no other source to make intervals from.
    """
    held = [
        band.low <= score.measured / score.predicted <= band.high
        for score, band in _bands_of(scores, known, tail)
    ]
    return 100 * sum(held) / len(held) if held else None


def _bands_of(scores: list[Score], known: list[Score], tail: float) -> Iterator[tuple[Score, Band]]:
    """Rows with the bounds that other sources' errors give them."""
    for source in sorted({s.row.source for s in scores}):
        bands = make_bands([s for s in known if s.row.source != source], tail)
        for score in scores:
            if score.row.source == source and bands:
                chosen = (b for b in bands if score.share <= b.up_to_share)
                yield score, next(chosen, bands[-1])


def stall_seconds(scores: list[Score], solo: list[Score], known: list[Score] | None = None) -> dict:
    """How often a stall in seconds lies in its interval, blind: both its bounds and one GPU's."""
    known = scores if known is None else known
    alone = {s.row.id: (s, b) for s, b in _bands_of(solo, solo, tail(solo))}
    held = []
    for score, band in _bands_of(scores, known, tail(known)):
        if score.row.single not in alone:
            continue
        one, bounds = alone[score.row.single]
        ratio = score.predicted / score.perfect
        low, high = (
            (ratio * side - 1) * one.predicted * (small if ratio * side < 1 else large)
            for side, small, large in (
                (band.low, bounds.high, bounds.low),
                (band.high, bounds.low, bounds.high),
            )
        )
        held.append(low <= score.measured - score.perfect <= high)
    return {
        "kind": "blind stall one, in seconds",
        "rows": len(held),
        "interval_coverage_percent": round(100 * sum(held) / len(held), 1) if held else None,
    }


def by_source(setting: str, scores: list[Score], kinds: dict[str, str]) -> list[dict]:
    """A line of figures for every source of every kind."""
    return [
        {
            "source": source,
            **summary(
                f"{setting} {kind}",
                [s for s in scores if (s.kind, s.row.source) == (kind, source)],
                None,
            ),
        }
        for kind in kinds
        for source in sorted({s.row.source for s in scores if s.kind == kind})
    ]


def summary(name: str, scores: list[Score], known: list[Score] | None) -> dict:
    """One line of figures."""
    large = [s for s in scores if s.stall > LARGE_STALL]
    held = None if known is None else coverage(scores, known, tail(known))

    def median(values) -> float | None:
        found = list(values)
        return round(float(np.median(np.abs(found))), 1) if found else None

    return {
        "kind": name,
        "rows": len(scores),
        "throughput_error_percent": median(s.error for s in scores),
        "perfect_scaling_error_percent": median(100 * (s.measured / s.perfect - 1) for s in scores),
        "plain_formula_error_percent": median(100 * (s.measured / s.plain - 1) for s in scores),
        "bias_percent": round(float(np.median([s.error for s in scores])), 1) if scores else None,
        "p90_error_percent": round(float(np.quantile([abs(s.error) for s in scores], 0.9)), 1)
        if scores
        else None,
        "stall_error_points": median(s.predicted_stall - s.stall for s in scores),
        "large_stalls": len(large),
        "large_stall_error_points": median(s.predicted_stall - s.stall for s in large),
        "large_stall_perfect_points": median(s.stall for s in large),
        "large_stall_plain_points": median(s.plain_stall - s.stall for s in large),
        "interval_coverage_percent": None if held is None else round(held, 1),
    }


def pairs(scores: list[Score]) -> dict:
    """Machines in the right order: by us, and by peak arithmetic where that differs."""
    places: dict[tuple, list[Score]] = {}
    for score in scores:
        row = score.row
        key = (row.source, row.model, row.length, row.dtype, row.batch, row.workers, row.messages)
        places.setdefault(key, []).append(score)
    told = [
        (_in_order(a.predicted, b.predicted, a, b), _in_order(1 / _peak(a), 1 / _peak(b), a, b))
        for same in places.values()
        for a, b in itertools.combinations(same, 2)
        if _machine(a.row) != _machine(b.row) and _differ(a.measured, b.measured)
    ]
    unequal = [(ours, peak) for ours, peak in told if peak is not None]
    return {
        "kind": "pairs of machines",
        "rows": len(told),
        "faster_named_percent": _percent(ours for ours, _ in told),
        "pairs_of_unequal_peak": len(unequal),
        "faster_named_of_unequal_peak_percent": _percent(ours for ours, _ in unequal),
        "by_peak_flops_percent": _percent(peak for _, peak in unequal),
        "pairs_of_equal_peak": len(told) - len(unequal),
        "faster_named_of_equal_peak_percent": _percent(ours for ours, peak in told if peak is None),
    }


def _in_order(of_a: float, of_b: float, a: Score, b: Score) -> bool | None:
    """Whether two times are in the measured order; none where they are equal."""
    return None if of_a == of_b else (of_a < of_b) == (a.measured < b.measured)


def _peak(score: Score) -> float:
    return score.row.gpu.flops["amp" if score.row.dtype == "amp" else "fp32"]


def _differ(one: float, other: float) -> bool:
    return max(one, other) >= (1 + MIN_PAIR_DIFFERENCE) * min(one, other)


def _percent(answers: Iterable[bool | None]) -> float | None:
    """Of all answers, those that are right; an equal time names nobody."""
    given = list(answers)
    return round(100 * sum(map(bool, given)) / len(given), 1) if given else None


def _machine(row: Row) -> tuple:
    return row.gpu.key, row.gpus_per_node, row.nodes, row.inside, row.between


if __name__ == "__main__":
    main()
