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
import math
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
from scipy.stats import t as student

from stash.predict.communication import Links, plain_seconds
from stash.predict.constants import Constants
from stash.predict.uncertainty import INTERVAL_PERCENT, Band, band, stall_bounds

KINDS = {
    "one": "one node against one GPU",
    "same": "several nodes against one with as many GPUs",
    "weak": "several nodes against one of them",
}
BLIND_KINDS = {"solo": "one GPU", "one": "one node", "nodes": "several nodes"}
LARGE_STALL = 10.0  # points
MIN_PAIR_DIFFERENCE = 0.10
#: What an interval leaves out at either end.
TAIL = (1 - INTERVAL_PERCENT / 100) / 2
#: Chances at which the biases that a new source may have are taken.
CHANCES = (np.arange(199) + 0.5) / 199
SHARES = (0.10, 0.25, 1.0)

Setting = tuple[str, str]  # as in BANDS: of what is known, and of what is predicted


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

    @property
    def log_error(self) -> float:
        return math.log(self.measured / self.predicted)


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
    intervals = Intervals(
        {
            ("calibrated", "node"): [s for s in calibrated if s.kind == "one"],
            ("calibrated", "nodes"): [s for s in calibrated if s.kind != "one"],
            ("blind", "solo"): [s for s in blind if s.kind == "solo"],
            ("blind over solo", "node"): [s for s in over_solo if s.kind == "one"],
            ("blind over solo", "nodes"): [s for s in over_solo if s.kind == "nodes"],
        }
    )
    lines, by_share = [], []

    def add(name: str, scores: list[Score], setting: Setting) -> None:
        lines.append(summary(name, scores, coverage(scores, intervals, setting)))

    for kind in KINDS:
        setting = ("calibrated", "node" if kind == "one" else "nodes")
        here = [s for s in calibrated if s.kind == kind]
        add(f"calibrated {kind}", here, setting)
        by_share.append(held_by_share(f"calibrated {kind}", here, intervals, setting))
        flagged = [s for s in with_all if s.kind == kind]
        add(f"calibrated {kind}, with flag {public_rows.FLAG_BY_VALUE}", flagged, setting)
    for kind, name in (("solo", "solo"), ("one", "node"), ("nodes", "nodes")):
        setting = ("blind", name)
        here = [s for s in blind if s.kind == kind]
        add(f"blind {kind}", here, setting)
        if kind != "solo":
            by_share.append(held_by_share(f"blind {kind}", here, intervals, setting))
        without = [s for s in here if not s.row.has_slow_single]
        add(f"blind {kind}, without {public_rows.SLOW_SINGLE}", without, setting)
    for kind, name in (("one", "node"), ("nodes", "nodes")):
        setting = ("blind over solo", name)
        here = intervals.known[setting]
        add(f"blind stall {kind}", here, setting)
        by_share.append(held_by_share(f"blind stall {kind}", here, intervals, setting))
    lines.append(summary("blind, model unseen", unseen, None))
    solo = intervals.known["blind", "solo"]
    lines.append(stall_seconds(intervals.known["blind over solo", "node"], solo, intervals))
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
        "bands": band_lines(intervals),
        "by_share": by_share,
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


class Intervals:
    """Bounds of measured over predicted time for a source that nobody has seen, from the errors of
    all sources or of all but one."""

    def __init__(self, known: dict[Setting, list[Score]]) -> None:
        self.known = known
        self._made: dict[str, dict[Setting, Band]] = {}

    def without(self, source: str) -> dict[Setting, Band]:
        """Of every setting of which enough is known."""
        if source not in self._made:
            others = {
                setting: [s for s in scores if s.row.source != source]
                for setting, scores in self.known.items()
            }
            made = {setting: _bounds(others, setting) for setting in others}
            self._made[source] = {setting: one for setting, one in made.items() if one is not None}
        return self._made[source]


def _bounds(known: dict[Setting, list[Score]], setting: Setting) -> Band | None:
    """A new source has a bias of its own, and rows that scatter about it as those of others do.

    Its bias is Student's: how far biases spread is itself known from few sources only. None where
    one source at most is known.
    """
    spread, freedom = bias_spread(known, setting)
    scores, bias = known[setting], biases(known[setting])
    if not bias or not freedom:
        return None
    centre = float(np.mean(list(bias.values())))
    of_new = student.ppf(CHANCES, freedom) * spread * math.sqrt(1 + 1 / len(bias))
    inside = np.array([s.log_error - bias[s.row.source] for s in scores])
    count = Counter(s.row.source for s in scores)
    weight = np.array([1 / count[s.row.source] for s in scores])
    errors = centre + np.add.outer(of_new, inside).ravel()
    low, high = _quantiles(errors, np.tile(weight, len(of_new)), (TAIL, 1 - TAIL))
    return Band(math.exp(low), math.exp(high))


def biases(scores: list[Score]) -> dict[str, float]:
    """Every source's mean error, in logarithms."""
    errors: dict[str, list[float]] = {}
    for score in scores:
        errors.setdefault(score.row.source, []).append(score.log_error)
    return {source: float(np.mean(several)) for source, several in errors.items()}


def bias_spread(known: dict[Setting, list[Score]], setting: Setting) -> tuple[float, int]:
    """How far biases of sources spread, and from how many degrees of freedom that is known.

    Few sources have several nodes, so those of one node tell of them, too, each about its own
    mean. Not the reverse: one node has no network to be wrong about.
    """
    what, kind = setting
    alike = ("node", "nodes") if kind == "nodes" else (kind,)
    together = [list(biases(known.get((what, one), [])).values()) for one in alike]
    together = [several for several in together if several]
    squares = sum(len(several) * float(np.var(several)) for several in together)
    freedom = sum(len(several) - 1 for several in together)
    return math.sqrt(squares / freedom) if freedom else 0.0, freedom


def _quantiles(values: np.ndarray, weight: np.ndarray, at: tuple[float, ...]) -> list[float]:
    order = np.argsort(values)
    values, weight = values[order], weight[order]
    place = (np.cumsum(weight) - weight / 2) / weight.sum()
    return [float(one) for one in np.interp(at, place, values)]


def _held(
    scores: list[Score], intervals: Intervals, setting: Setting
) -> Iterator[tuple[Score, Band]]:
    """Rows with the bounds that other sources' errors give them."""
    for score in scores:
        bands = intervals.without(score.row.source)
        try:
            yield score, band(*setting, bands)
        except KeyError:  # of one part of it too little is known
            continue


def coverage(scores: list[Score], intervals: Intervals, setting: Setting) -> float | None:
    """How often intervals made from the other sources' errors hold, in percent.

    None where there is no row, or too few other sources to make intervals from.
    """
    held = [
        bounds.low <= score.measured / score.predicted <= bounds.high
        for score, bounds in _held(scores, intervals, setting)
    ]
    return _percent(held)


def held_by_share(
    name: str, scores: list[Score], intervals: Intervals, setting: Setting
) -> dict[str, object]:
    """The same apart for rows with little and with much exchange: bounds do not ask for it."""
    line: dict[str, object] = {"kind": name}
    for low, high in zip((-math.inf, *SHARES), SHARES, strict=False):
        here = [s for s in scores if low < s.share <= high]
        line[f"up to {high:g}"] = (len(here), coverage(here, intervals, setting))
    return line


def band_lines(intervals: Intervals) -> list[dict]:
    """Bounds from all sources, as they ship, and what they were made from."""
    bands = intervals.without("")
    lines = []
    for setting, bounds in bands.items():
        scores = intervals.known[setting]
        spread, _ = bias_spread(intervals.known, setting)
        lines.append(
            {
                "kind": " ".join(setting),
                "sources": len(biases(scores)),
                "bias_spread": spread,
                **asdict(bounds),
            }
        )
    for kind in ("node", "nodes"):
        both = asdict(band("blind", kind, bands))
        lines.append({"kind": f"blind {kind}", "sources": None, "bias_spread": None, **both})
    return lines


def stall_seconds(scores: list[Score], solo: list[Score], intervals: Intervals) -> dict:
    """How often a stall in seconds lies in its interval, blind: its own error and one GPU's."""
    alone = {s.row.id: (s, bounds) for s, bounds in _held(solo, intervals, ("blind", "solo"))}
    held = []
    for score, bounds in _held(scores, intervals, ("blind over solo", "node")):
        if score.row.single not in alone:
            continue
        one, of_one = alone[score.row.single]
        ratio = score.predicted / score.perfect
        low, high = (
            side * one.predicted
            for side in stall_bounds(
                ratio - 1, ratio * bounds.low - 1, ratio * bounds.high - 1, of_one
            )
        )
        held.append(low <= score.measured - score.perfect <= high)
    return {
        "kind": "blind stall one, in seconds",
        "rows": len(held),
        "interval_coverage_percent": _percent(held),
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


def summary(name: str, scores: list[Score], held: float | None) -> dict:
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
        "p90_error_percent": round(float(np.quantile([abs(s.error) for s in scores], 0.9)), 1)
        if scores
        else None,
        "stall_error_points": median(s.predicted_stall - s.stall for s in scores),
        "large_stalls": len(large),
        "large_stall_error_points": median(s.predicted_stall - s.stall for s in large),
        "large_stall_perfect_points": median(s.stall for s in large),
        "large_stall_plain_points": median(s.plain_stall - s.stall for s in large),
        "interval_coverage_percent": held,
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
