"""Write docs/validation.md and its picture from a run of the validation.

python benchmarks/validation_page.py --data FOLDER [--fits FILE] [--page docs/validation.md]
"""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

import numpy as np
import public_rows
import validate_predictor
from validate_predictor import BLIND_KINDS, KINDS, LARGE_STALL, Score

WORST = 10
LIMITS = {"one": 8.0, "same": 15.0, "weak": 15.0}
BLIND_LIMIT = 25.0
HOLDS = (85.0, 95.0)
TEXT = Path(__file__).with_name("validation_text.md")
PERFECT, PLAIN = "perfect scaling", "`L*tau+G/B`"
ERROR, POINTS = "throughput error %", "points where the stall is large"
#: What is compared, our figure, that of a simpler prediction, and which that is.
BASELINES = (
    (ERROR, "throughput_error_percent", "perfect_scaling_error_percent", PERFECT),
    (ERROR, "throughput_error_percent", "plain_formula_error_percent", PLAIN),
    (POINTS, "large_stall_error_points", "large_stall_perfect_points", PERFECT),
    (POINTS, "large_stall_error_points", "large_stall_plain_points", PLAIN),
)

#: Why a source is over a bar, as far as its rows tell; by setting and by the start of its name.
REASONS = {
    ("calibrated", "siasosp23"): "a rented network that no other source has: see below",
    ("calibrated", "HKBU-HPML"): (
        "four GeForce cards, predicted slower than measured but for ResNet50 with ByteScheduler; "
        "why is not known"
    ),
    ("calibrated", "Oneflow-Inc"): (
        "several frameworks on the same machines, with real data: PaddlePaddle, TensorFlow 2.3 and "
        "ResNet50 in amp are furthest off; what they wait for, exchange or input, is not told"
    ),
    ("calibrated", "tensorflow/docs"): (
        "rows with real pictures on four and eight GPUs are furthest off: likely the input pipeline"
    ),
    ("calibrated", "tensorpack"): (
        "eight cards on PCIe stall less than the fitted sharing of PCIe says; which of them share "
        "a switch is not told"
    ),
    ("blind", "siasosp23"): "its framework does work of its own in every iteration: see below",
    ("blind", "tensorflow/docs"): (
        "P100 with NVLink, faster than predicted with real and synthetic pictures alike; no other "
        "source has this card: why is not known"
    ),
    ("blind", "tensorpack"): "TensorFlow 1.3, slower than predicted: likely the old software",
    ("blind", "u39kun"): (
        "old software at batch 16: amp in PyTorch 0.3 and TensorFlow 1.4 and 1.5 is furthest off, "
        "PyTorch 1.0 on the same card is nearer: likely the software"
    ),
    ("blind", "mlcommons"): (
        "entries of a contest, nearly all MXNet and ResNet50 in amp, faster than predicted on "
        "every GPU alike: likely the software"
    ),
    ("blind", "NVIDIA"): (
        "NVIDIA's own container, faster than predicted, as the contest's entries: likely the same"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--fits", type=Path)
    parser.add_argument("--page", type=Path, default=Path("docs/validation.md"))
    options = parser.parse_args()
    found = validate_predictor.validate(options.data, options.fits)
    picture = options.page.with_suffix(".svg")
    picture.write_text(scatter(found["calibrated"], found["blind"]), "utf-8")
    page = TEXT.read_text("utf-8")
    for name, value in {**tables(found), **figures(found)}.items():
        page = page.replace("{{" + name + "}}", value)
    options.page.write_text(page, "utf-8")


def tables(found: dict) -> dict[str, str]:
    """The tables of the page, by their names in its text."""
    calibrated = [one for one in found["sources"] if one["kind"].startswith("calibrated")]
    blind = [one for one in found["sources"] if one["kind"].startswith("blind")]
    return {
        "chosen": chosen(found),
        "kinds": kinds(found["lines"]),
        "bars": bars(found["lines"]),
        "baselines": baselines(found["lines"]),
        "missed_by_source": missed_by_source(found["sources"]),
        "sources_table": by_source(calibrated),
        "blind_table": blind_by_source(blind),
        "parts": part_table(found["parts"]),
        "constants": constants(found["constants"]),
        "bands": bands(found["bands"]),
        "by_share": by_share(found["by_share"]),
        "worst": worst(found["calibrated"]),
    }


def figures(found: dict) -> dict[str, str]:
    """The figures within the page's sentences."""
    by_kind = {line["kind"]: line for line in found["lines"]}
    calibrated = [s for s in found["calibrated"] if s.row.workers > 1]
    small = [s for s in calibrated if s.stall <= LARGE_STALL]
    slow = [
        line["bias_percent"]
        for line in found["sources"]
        if line["kind"].startswith("blind") and line["source"] == public_rows.SLOW_SINGLE
    ]
    across = {s.row.source for s in calibrated if s.kind != "one"}
    same, weak = by_kind["calibrated same"], by_kind["calibrated weak"]
    solo = by_kind[f"blind solo, without {public_rows.SLOW_SINGLE}"]

    def cloud(constants: dict) -> str:
        return f"{constants['bandwidth_efficiency']['cloud']:.2g}"

    return {
        "date": date.today().isoformat(),
        "rows": f"{found['rows']:,}",
        "sources": str(len(found["by_source"])),
        "left_out_by_value": str(found["left_out_by_value"]),
        "flagged": str(found["left_out"][f"flag {public_rows.FLAG_BY_VALUE}"]),
        "small_stalls": f"{100 * len(small) / len(calibrated):.0f}",
        "same_large": str(same["large_stalls"]),
        "same_rows": str(same["rows"]),
        "nodes_held": f"{_together(same, weak):.1f}",
        "solo_held": str(solo["interval_coverage_percent"]),
        "cloud_without": cloud(found["constants_without_slow_single"]),
        "cloud_with": cloud(found["constants"]),
        "slow_bias": ", ".join(f"{one:.0f} %" for one in slow),
        "other_sources": str(len(across) - 1),
        "equal_peaks": str(by_kind["pairs of machines"]["pairs_of_equal_peak"]),
        "equal_peaks_named": str(
            by_kind["pairs of machines"]["faster_named_of_equal_peak_percent"]
        ),
    }


def _together(*lines: dict) -> float:
    """How often intervals hold on the rows of several lines."""
    held = sum(line["rows"] * (line["interval_coverage_percent"] or 0.0) for line in lines)
    return held / sum(line["rows"] for line in lines)


def table(heads: list[str], rows: list[list[object]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(map(_cell, row)) + " |" for row in rows)])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def chosen(found: dict) -> str:
    rows = [[reason, count] for reason, count in sorted(found["left_out"].items())]
    rows = [["**kept**", found["rows"]], *rows]
    return table(["why", "rows"], rows)


def kinds(lines: list[dict]) -> str:
    heads = [
        "what",
        "rows",
        "throughput error %",
        "perfect scaling %",
        "`L*tau+G/B` %",
        "bias %",
        "90th percentile %",
        "stall error, points",
        f"rows with stall > {LARGE_STALL:g}",
        "error there, points",
        "perfect scaling there",
        "`L*tau+G/B` there",
        "90 % interval holds %",
    ]
    keys = [
        "kind",
        "rows",
        "throughput_error_percent",
        "perfect_scaling_error_percent",
        "plain_formula_error_percent",
        "bias_percent",
        "p90_error_percent",
        "stall_error_points",
        "large_stalls",
        "large_stall_error_points",
        "large_stall_perfect_points",
        "large_stall_plain_points",
        "interval_coverage_percent",
    ]
    return table(heads, [[line[key] for key in keys] for line in lines if keys[2] in line])


def bars(lines: list[dict]) -> str:
    by_kind = {line["kind"]: line for line in lines}
    rows: list[list[object]] = []
    for kind, limit in LIMITS.items():
        line = by_kind[f"calibrated {kind}"]
        rest = by_kind[f"calibrated {kind}, with flag {public_rows.FLAG_BY_VALUE}"]
        rows += [
            _error_bar(f"calibrated, {KINDS[kind]}", limit, line, rest),
            _points_bar(line, rest),
        ]
    for kind, name in BLIND_KINDS.items():
        rows.append(_error_bar(f"blind, {name}", BLIND_LIMIT, by_kind[f"blind {kind}"]))
    for kind, name in KINDS.items():
        rest = by_kind[f"calibrated {kind}, with flag {public_rows.FLAG_BY_VALUE}"]
        rows.append(_interval_bar(f"calibrated, {name}", by_kind[f"calibrated {kind}"], rest))
    for kind, name in BLIND_KINDS.items():
        rows.append(_interval_bar(f"blind, {name}", by_kind[f"blind {kind}"]))
    for kind, name in (
        ("one", "stall of one node, in percent"),
        ("one, in seconds", "stall of one node, in seconds"),
        ("nodes", "stall of several nodes, in percent"),
    ):
        rows.append(_interval_bar(f"blind, {name}", by_kind[f"blind stall {kind}"]))
    rows.append(_pairs_bar(by_kind["pairs of machines"]))
    return table(["what", "bar", "found", f"with flag `{public_rows.FLAG_BY_VALUE}`", "met?"], rows)


def _error_bar(what: str, limit: float, line: dict, rest: dict | None = None) -> list[object]:
    error = line["throughput_error_percent"]
    met = None if error is None else error <= limit
    also = None if rest is None else _with_percent(rest["throughput_error_percent"])
    return [
        f"{what}: throughput error",
        f"at most {limit:g} %",
        _with_percent(error),
        also,
        _met(met),
    ]


def _points_bar(line: dict, rest: dict) -> list[object]:
    points, perfect = line["large_stall_error_points"], line["large_stall_perfect_points"]
    what = f"the same, where the stall exceeds {LARGE_STALL:g} points: error in points"
    if points is None:
        return [what, "at most half of perfect scaling's", None, None, _met(None)]
    bar = f"at most half of perfect scaling's {perfect}, {perfect / 2:.1f}"
    other, most = rest["large_stall_error_points"], rest["large_stall_perfect_points"] / 2
    also = f"{other}, at most {most:.1f}: {_met(other <= most)}"
    return [what, bar, points, also, _met(points <= perfect / 2)]


def _interval_bar(what: str, line: dict, rest: dict | None = None) -> list[object]:
    held = line["interval_coverage_percent"]
    met = None if held is None else HOLDS[0] <= held <= HOLDS[1]
    also = None if rest is None else _with_percent(rest["interval_coverage_percent"])
    bar = f"{HOLDS[0]:g} to {HOLDS[1]:g} %"
    return [f"{what}: 90 % interval holds", bar, _with_percent(held), also, _met(met)]


def _pairs_bar(line: dict) -> list[object]:
    ours, peak = line["faster_named_percent"], line["by_peak_flops_percent"]
    there = line["faster_named_of_unequal_peak_percent"]
    found = (
        f"{ours} % of {line['rows']} pairs; of the {line['pairs_of_unequal_peak']} whose peaks "
        f"differ {there} %, by peak {peak} %"
    )
    met = None if peak is None else ours >= 90 and there > peak
    bar = "at least 90 %, and more often than by peak FLOPS"
    return ["the faster of two machines named", bar, found, None, _met(met)]


def _with_percent(value: float | None) -> str | None:
    return None if value is None else f"{value} %"


def baselines(lines: list[dict]) -> str:
    """Where a simpler prediction is nearer than ours, on the median."""
    rows = [
        [line["kind"], what, line[ours], f"{name} {line[other]}"]
        for line in lines
        for what, ours, other, name in BASELINES
        if line.get(ours) is not None and line[other] < line[ours]
    ]
    return table(["what", "figure", "ours", "nearer"], rows)


def missed_by_source(lines: list[dict]) -> str:
    """The same bars for every source alone: which of them are over one, and why."""
    rows = []
    for line in lines:
        setting, kind = line["kind"].split()
        limit = BLIND_LIMIT if setting == "blind" else LIMITS[kind]
        error, points = line["throughput_error_percent"], line["large_stall_error_points"]
        perfect = line["large_stall_perfect_points"]
        over = [f"throughput error {error} %, at most {limit:g}"] if error > limit else []
        if setting == "calibrated" and points is not None and points > perfect / 2:
            over.append(f"{points} points where the stall is large, at most {perfect / 2:.1f}")
        if over:
            why = _why(setting, line["source"])
            rows.append([line["kind"], line["source"], line["rows"], "; ".join(over), why])
    return table(["kind", "source", "rows", "over the bar", "why"], rows)


def _why(setting: str, source: str) -> str:
    told = (
        words
        for (where, name), words in REASONS.items()
        if where == setting and source.startswith(name)
    )
    return next(told, "not known")


def bands(found: list[dict]) -> str:
    rows = [
        [
            line["kind"],
            f"{line['low']:.3g}",
            f"{line['high']:.3g}",
            line["sources"],
            None if line["bias_spread"] is None else f"{line['bias_spread']:.2g}",
        ]
        for line in found
    ]
    return table(["what", "low", "high", "sources", "spread of their biases, logarithm"], rows)


def by_share(found: list[dict]) -> str:
    shares = [key for key in found[0] if key != "kind"]
    rows = [[line["kind"], *(_of_rows(*line[share]) for share in shares)] for line in found]
    return table(["90 % interval holds, by share of exchange", *shares], rows)


def _of_rows(rows: int, held: float | None) -> str | None:
    return None if held is None else f"{held} % of {rows}"


def _met(is_met: bool | None) -> str:
    return "no rows" if is_met is None else "yes" if is_met else "**no**"


def by_source(lines: list[dict]) -> str:
    heads = {
        "kind": "kind",
        "source": "source",
        "rows": "rows",
        "throughput_error_percent": "throughput error %",
        "bias_percent": "bias %",
        "p90_error_percent": "90th percentile %",
        "perfect_scaling_error_percent": "perfect scaling %",
        "plain_formula_error_percent": "`L*tau+G/B` %",
        "large_stalls": "rows with large stall",
        "large_stall_error_points": "error there, points",
        "large_stall_perfect_points": "perfect scaling there",
    }
    return _lines(lines, heads)


def blind_by_source(lines: list[dict]) -> str:
    heads = {
        "kind": "kind",
        "source": "source",
        "rows": "rows",
        "throughput_error_percent": "throughput error %",
        "bias_percent": "bias %",
        "p90_error_percent": "90th percentile %",
    }
    return _lines(lines, heads)


def _lines(lines: list[dict], heads: dict[str, str]) -> str:
    return table(list(heads.values()), [[line[key] for key in heads] for line in lines])


def part_table(lines: list[dict]) -> str:
    rows = [
        [
            line["kind"],
            line["rows"],
            line.get("median_error_percent"),
            line.get("bias_percent"),
            line.get("share_misplaced_percent"),
        ]
        for line in lines
    ]
    return table(["part", "rows", "median error %", "bias %", "share of time misplaced %"], rows)


def constants(found: dict) -> str:
    rows = []
    for name, value in found.items():
        if isinstance(value, dict):
            rows += [[f"`{name}`, {key}", f"{one:.3g}"] for key, one in value.items()]
        else:
            rows.append([f"`{name}`", f"{value:.3g}"])
    return table(["constant", "fitted to all rows"], rows)


def worst(scores: list[Score]) -> str:
    order = sorted(scores, key=lambda s: -abs(s.predicted_stall - s.stall))[:WORST]
    rows = [
        [
            s.row.id,
            s.kind,
            f"{s.row.model}, {s.row.dtype}, batch {s.row.batch:g}",
            f"{s.row.nodes} x {s.row.gpus_per_node} {s.row.gpu.key}",
            f"{s.stall:.0f}",
            f"{s.predicted_stall:.0f}",
            reason(s),
        ]
        for s in order
    ]
    return table(["row", "kind", "model", "machine", "stall, points", "predicted", "reason"], rows)


def reason(score: Score) -> str:
    """What sets a row apart, by facts of the row; what we do not know is called likely."""
    row = score.row
    if row.between is not None and row.between.transport == "cloud":
        return (
            "TCP between containers on a rented network: exchange gets half of one flow's "
            "limit and less with more machines; the only source of its kind, so left out it is "
            "not foreseen"
        )
    if row.messages == "tensors":
        return "TensorFlow's own exchange through the host; its messages are not PyTorch's"
    if row.real_data and score.stall > 3 * score.predicted_stall and row.model.startswith("res"):
        return "real pictures for all GPUs from one host: likely the input pipeline, not exchange"
    return "gradients through the host's memory; boards differ in how many cards share a path"


def scatter(calibrated: list[Score], blind: list[Score]) -> str:
    """Predicted against measured seconds per iteration, both logarithmic."""
    size, margin = 420, 50
    low, high = -2.3, 1.3

    def place(seconds: float) -> float:
        return (np.log10(seconds) - low) / (high - low) * size

    def dots(scores: list[Score], colour: str) -> str:
        unique = {s.row.id: s for s in scores if s.row.workers > 1}.values()
        marks = "".join(
            f"M{margin + place(s.measured):.0f} {margin + size - place(s.predicted):.0f}h0"
            for s in unique
        )
        style = 'stroke-width="4" stroke-linecap="round" stroke-opacity="0.4"'
        return f'<path d="{marks}" stroke="{colour}" {style}/>'

    ticks = "".join(
        f'<text x="{margin + place(t):.0f}" y="{margin + size + 16}" text-anchor="middle">{t:g}'
        f'</text><text x="{margin - 6}" y="{margin + size - place(t) + 4:.0f}" '
        f'text-anchor="end">{t:g}</text>'
        for t in (0.01, 0.1, 1.0, 10.0)
    )
    end = margin + size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size + 2 * margin}" '
        f'height="{size + 2 * margin}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<rect x="{margin}" y="{margin}" width="{size}" height="{size}" fill="none" '
        f'stroke="#888"/><line x1="{margin}" y1="{end}" x2="{end}" y2="{margin}" stroke="#888"/>'
        f"{dots(blind, '#d95f02')}{dots(calibrated, '#1b6ca8')}{ticks}"
        f'<text x="{margin + size / 2:.0f}" y="{end + 36}" text-anchor="middle">'
        f"measured by others, seconds per iteration</text>"
        f'<text transform="translate(14 {margin + size / 2:.0f}) '
        f'rotate(-90)" text-anchor="middle">predicted</text><text x="{margin}" y="30">'
        f'<tspan fill="#1b6ca8">calibrated on one GPU</tspan>, '
        f'<tspan fill="#d95f02">blind</tspan>; '
        f"the source itself left out of every fit</text></svg>\n"
    )


if __name__ == "__main__":
    main()
