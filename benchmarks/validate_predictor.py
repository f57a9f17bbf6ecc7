"""The predictor against other people's measurements, and against two simpler predictions.

    python benchmarks/validate_predictor.py --data FOLDER [--json] [--fits FILE]

Every row is predicted by constants that were fitted without its source (and, for unseen models,
without its model). Two settings: *calibrated*, where the source's row of one GPU is known, and
*blind*, from specifications alone. Fits are kept in FILE, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import predictor_fit
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
        for line in lines:
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
    bands = {
        "calibrated node": [s for s in calibrated if s.kind == "one"],
        "calibrated nodes": [s for s in calibrated if s.kind != "one"],
        "blind solo": [s for s in blind if s.row.workers == 1],
        "blind node": [s for s in blind if s.row.nodes == 1 and s.row.workers > 1],
        "blind nodes": [s for s in blind if s.row.nodes > 1],
    }
    lines = [
        summary(
            f"calibrated {kind}",
            [s for s in calibrated if s.kind == kind],
            bands["calibrated node" if kind == "one" else "calibrated nodes"],
        )
        for kind in KINDS
    ]
    for kind, name in (("solo", "solo"), ("one", "node"), ("nodes", "nodes")):
        here = bands[f"blind {name}"]
        lines.append(summary(f"blind {kind}", here, here))
        without = [s for s in here if not s.row.has_slow_single]
        lines.append(summary(f"blind {kind}, without {public_rows.SLOW_SINGLE}", without, here))
    lines += [summary("blind, model unseen", unseen, None), pairs(blind)]
    return {
        "rows": len(rows),
        "left_out": dict(left_out),
        "by_source": dict(Counter(r.source for r in rows.values())),
        "flags_left_out": public_rows.LEFT_OUT_FLAGS,
        "trust": public_rows.TRUSTED,
        "constants": asdict(fits.without("source", "none")),
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


def calibrated_scores(rows: dict[str, Row], fits: Fits) -> list[Score]:
    """Every row of several GPUs, by constants that do not know its source."""
    chosen = [r for r in rows.values() if r.workers > 1 and r.single in rows]
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
    scores = []
    for row in chosen:
        if row.nodes == 1 and not row.has_slow_single:
            scores.append(_score(row, "one", rows[row.single], predicted, plain))
        for kind in ("same", "weak"):
            reference = rows.get(getattr(row, kind) or "")
            slow = row.has_slow_single and reference is not None and reference.workers == 1
            if row.nodes > 1 and reference is not None and not slow:
                scores.append(_score(row, kind, reference, predicted, plain))
    return scores


def _score(row: Row, kind: str, base: Row, predicted: dict, plain: dict) -> Score:
    def of(seconds: dict[str, float], one: Row) -> float:
        return seconds.get(one.id, one.seconds)  # a row of one GPU is known

    ratio = of(predicted, row) / of(predicted, base)
    plain_ratio = of(plain, row) / of(plain, base)
    on_base = row.has_slow_single
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
    found = (one for one in TAILS if coverage(scores, scores, one) >= ASKED_COVERAGE)
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


def coverage(scores: list[Score], known: list[Score], tail: float) -> float:
    """How often intervals made from the other sources' errors hold, in percent."""
    inside = 0
    for source in {s.row.source for s in scores}:
        bands = make_bands([s for s in known if s.row.source != source], tail)
        for s in scores:
            if s.row.source == source:
                band = next((b for b in bands if s.share <= b.up_to_share), bands[-1])
                inside += band.low <= s.measured / s.predicted <= band.high
    return 100 * inside / len(scores)


def summary(name: str, scores: list[Score], known: list[Score] | None) -> dict:
    """One line of figures."""
    large = [s for s in scores if s.stall > LARGE_STALL]

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
        "p90_error_percent": round(float(np.quantile([abs(s.error) for s in scores], 0.9)), 1),
        "stall_error_points": median(s.predicted_stall - s.stall for s in scores),
        "large_stalls": len(large),
        "large_stall_error_points": median(s.predicted_stall - s.stall for s in large),
        "large_stall_perfect_points": median(s.stall for s in large),
        "large_stall_plain_points": median(s.plain_stall - s.stall for s in large),
        "interval_coverage_percent": round(coverage(scores, known, tail(known)), 1)
        if known is not None
        else None,
    }


def pairs(scores: list[Score]) -> dict:
    """Machines in the right order: by us, and by peak arithmetic."""
    places: dict[tuple, list[Score]] = {}
    for score in scores:
        row = score.row
        key = (row.source, row.model, row.length, row.dtype, row.batch, row.workers, row.messages)
        places.setdefault(key, []).append(score)
    ours = peak = total = 0
    for same in places.values():
        for i, a in enumerate(same):
            for b in same[i + 1 :]:
                if _machine(a.row) == _machine(b.row):
                    continue
                if max(a.measured, b.measured) < (1 + MIN_PAIR_DIFFERENCE) * min(
                    a.measured, b.measured
                ):
                    continue
                total += 1
                ours += (a.predicted < b.predicted) == (a.measured < b.measured)
                flops = [s.row.gpu.flops["amp" if s.row.dtype == "amp" else "fp32"] for s in (a, b)]
                peak += flops[0] != flops[1] and (flops[0] > flops[1]) == (a.measured < b.measured)
    return {
        "kind": "pairs of machines",
        "rows": total,
        "faster_named_percent": round(100 * ours / max(total, 1), 1),
        "by_peak_flops_percent": round(100 * peak / max(total, 1), 1),
    }


def _machine(row: Row) -> tuple:
    return row.gpu.key, row.gpus_per_node, row.nodes, row.inside, row.between


if __name__ == "__main__":
    main()
