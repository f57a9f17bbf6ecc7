"""Write docs/validation.md and its picture from a run of the validation.

python benchmarks/validation_page.py --data FOLDER [--fits FILE] [--page docs/validation.md]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import predictor_parts
import validate_predictor
from validate_predictor import KINDS, LARGE_STALL, Score

WORST = 10
LIMITS = {"one": 8.0, "same": 15.0, "weak": 15.0}
TEXT = Path(__file__).with_name("validation_text.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--fits", type=Path)
    parser.add_argument("--page", type=Path, default=Path("docs/validation.md"))
    options = parser.parse_args()
    found = validate_predictor.validate(options.data, options.fits)
    picture = options.page.with_suffix(".svg")
    picture.write_text(scatter(found["calibrated"], found["blind"]), "utf-8")
    parts = [*predictor_parts.all_reduce(options.data), *predictor_parts.layers(options.data)]
    values = {
        "rows": f"{found['rows']:,}",
        "sources": str(len(found["by_source"])),
        "chosen": chosen(found),
        "kinds": kinds(found["lines"]),
        "bars": bars(found["lines"]),
        "missed_by_source": missed_by_source(found["calibrated"]),
        "sources_table": by_source(found["calibrated"]),
        "blind_table": blind_by_source(found["blind"]),
        "parts": part_table(parts),
        "constants": constants(found["constants"]),
        "tails": ", ".join(f"{name} {100 * one:g} %" for name, one in found["tails"].items()),
        "worst": worst(found["calibrated"]),
    }
    page = TEXT.read_text("utf-8")
    for name, value in values.items():
        page = page.replace("{{" + name + "}}", value)
    options.page.write_text(page, "utf-8")


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
    rows = []
    for kind, limit in LIMITS.items():
        line = by_kind[f"calibrated {kind}"]
        error = line["throughput_error_percent"]
        rows.append(
            [
                f"calibrated, {KINDS[kind]}: throughput error",
                f"at most {limit:g} %",
                f"{error} %",
                _met(error <= limit),
            ]
        )
        points, perfect = line["large_stall_error_points"], line["large_stall_perfect_points"]
        rows.append(
            [
                f"the same, where the stall exceeds {LARGE_STALL:g} points: error in points",
                f"at most half of perfect scaling's {perfect}, {perfect / 2:.1f}",
                f"{points}",
                _met(points <= perfect / 2),
            ]
        )
    for kind in ("solo", "one", "nodes"):
        error = by_kind[f"blind {kind}"]["throughput_error_percent"]
        rows.append(
            [f"blind, {kind}: throughput error", "at most 25 %", f"{error} %", _met(error <= 25)]
        )
    for kind in KINDS:
        held = by_kind[f"calibrated {kind}"]["interval_coverage_percent"]
        rows.append(
            [
                f"calibrated, {KINDS[kind]}: 90 % interval holds",
                "85 to 95 %",
                f"{held} %",
                _met(85 <= held <= 95),
            ]
        )
    pairs = by_kind["pairs of machines"]
    ours, peak = pairs["faster_named_percent"], pairs["by_peak_flops_percent"]
    rows.append(
        [
            f"the faster of two machines named ({pairs['rows']} pairs)",
            "at least 90 %, and more often than by peak FLOPS",
            f"{ours} %, by peak {peak} %",
            _met(ours >= 90 and ours > peak),
        ]
    )
    return table(["what", "bar", "found", "met?"], rows)


def missed_by_source(scores: list[Score]) -> str:
    """The same two bars for every source alone: which of them are over one."""
    rows = []
    for kind, limit in LIMITS.items():
        for source in sorted({s.row.source for s in scores if s.kind == kind}):
            line = validate_predictor.summary(
                kind, [s for s in scores if s.kind == kind and s.row.source == source], None
            )
            error, points = line["throughput_error_percent"], line["large_stall_error_points"]
            perfect = line["large_stall_perfect_points"]
            over = [f"throughput error {error} %, at most {limit:g}"] if error > limit else []
            if points is not None and points > perfect / 2:
                over.append(f"{points} points where the stall is large, at most {perfect / 2:.1f}")
            if over:
                rows.append([KINDS[kind], source, line["rows"], "; ".join(over)])
    return table(["kind", "source", "rows", "over the bar"], rows)


def _met(is_met: bool) -> str:
    return "yes" if is_met else "**no**"


def by_source(scores: list[Score]) -> str:
    heads = [
        "kind",
        "source",
        "rows",
        "throughput error %",
        "bias %",
        "90th percentile %",
        "perfect scaling %",
        "`L*tau+G/B` %",
        "rows with large stall",
        "error there, points",
        "perfect scaling there",
    ]
    rows = []
    for kind in KINDS:
        for source in sorted({s.row.source for s in scores if s.kind == kind}):
            line = validate_predictor.summary(
                kind, [s for s in scores if s.kind == kind and s.row.source == source], None
            )
            rows.append(
                [
                    kind,
                    source,
                    line["rows"],
                    line["throughput_error_percent"],
                    line["bias_percent"],
                    line["p90_error_percent"],
                    line["perfect_scaling_error_percent"],
                    line["plain_formula_error_percent"],
                    line["large_stalls"],
                    line["large_stall_error_points"],
                    line["large_stall_perfect_points"],
                ]
            )
    return table(heads, rows)


def blind_by_source(scores: list[Score]) -> str:
    rows = []
    for kind in ("solo", "one", "nodes"):
        for source in sorted({s.row.source for s in scores if s.kind == kind}):
            errors = [s.error for s in scores if s.kind == kind and s.row.source == source]
            rows.append(
                [
                    kind,
                    source,
                    len(errors),
                    float(np.median(np.abs(errors))),
                    float(np.median(errors)),
                    float(np.quantile(np.abs(errors), 0.9)),
                ]
            )
    return table(
        ["kind", "source", "rows", "throughput error %", "bias %", "90th percentile %"], rows
    )


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
