"""Public measurements are chosen by named reasons, and a fit finds constants that made the rows."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import predictor_fit
import public_rows
import pytest
import validate_predictor

from stash.hardware import gpus
from stash.predict.communication import Link
from stash.predict.constants import FITTED

COLUMNS = [
    "row_id",
    "source",
    "model",
    "framework",
    "precision",
    "batch_per_gpu",
    "gpu",
    "total_gpus",
    "nodes",
    "instance",
    "interconnect",
    "network",
    "metric",
    "value",
    "unit",
    "group",
    "stall_pct",
    "net_stall_same_gpus_pct",
    "net_stall_weak_pct",
    "ref_row",
    "flag",
    "trust",
]
ROW = {
    "source": "somebody/benchmarks",
    "model": "ResNet-50",
    "framework": "PyTorch",
    "precision": "FP32",
    "batch_per_gpu": "64",
    "gpu": "V100-16GB",
    "total_gpus": "1",
    "nodes": "1",
    "metric": "throughput",
    "value": "300",
    "trust": "A",
}


def write(folder: Path, *rows: dict[str, str]) -> Path:
    with (folder / "scaling.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows([{**ROW, **row} for row in rows])
    return folder


def test_rows_are_left_out_by_name_and_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"row_id": "kept"},
        {"row_id": "a", "flag": "parameter_server;real_data;"},
        {"row_id": "b", "flag": "grad_accumulation;"},
        {"row_id": "c", "trust": "C"},
        {"row_id": "d", "model": "nobody's net"},
        {"row_id": "e", "gpu": "RTX 2080 MAX-Q"},
        {"row_id": "f", "metric": "time_to_train"},
        {"row_id": "g", "nodes": "2", "total_gpus": "16", "network": "not told"},
        {"row_id": "h", "framework": "TF 1.3 variable_update=parameter_server"},
    )
    kept, left_out = public_rows.read(tmp_path)
    assert list(kept) == ["kept"]
    assert sum(left_out.values()) == 8
    assert left_out["flag parameter_server"] == 1
    assert left_out["trust C"] == 1


def test_seconds_and_references_are_read_as_the_columns_mean(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "row_id": "x",
            "total_gpus": "16",
            "nodes": "2",
            "network": "10GbE with TCP/IP",
            "value": "3200",
            "stall_pct": "50",
            "net_stall_weak_pct": "20",
            "ref_row": "one node",
        },
    )
    (row,) = public_rows.read(tmp_path)[0].values()
    assert row.seconds == pytest.approx(64 * 16 / 3200)
    assert (row.single, row.same, row.weak) == ("one", None, "node")
    assert row.between is not None
    assert (row.gpus_per_node, row.between.bytes_per_second) == (8, 1.25e9)


def made_up_rows() -> dict[str, public_rows.Row]:
    """Measurements that the model itself makes, with other constants than the fitted ones."""
    rows: dict[str, public_rows.Row] = {}
    singles = [
        {"row_id": f"{model}-{batch}", "model": model, "batch_per_gpu": batch, "value": "250"}
        for model in ("ResNet-50", "vgg16")
        for batch in ("16", "64")
    ]
    many = [
        {
            **single,
            "row_id": f"{single['row_id']}-{nodes}x{gpus}",
            "nodes": str(nodes),
            "total_gpus": str(nodes * gpus),
            "network": "10GbE with TCP/IP",
            "stall_pct": "1",
            "ref_row": single["row_id"],
        }
        for single in singles
        for nodes, gpus in ((1, 4), (1, 8), (2, 8), (4, 8))
    ]
    for record in [*singles, *many]:
        made = public_rows._row({**dict.fromkeys(COLUMNS, ""), **ROW, **record})
        assert isinstance(made, public_rows.Row)
        rows[made.id] = made
    return rows


def test_a_fit_finds_the_constants_behind_the_rows() -> None:
    rows = made_up_rows()
    truth = replace(
        FITTED,
        bandwidth_efficiency={**FITTED.bandwidth_efficiency, "nvlink": 0.45, "tcp": 0.5},
        straggling=0.04,
    )
    cases = predictor_fit.calibrated_cases(rows, FITTED)
    seconds = cases.seconds(truth)
    known = [replace(row, seconds=float(s)) for row, s in zip(cases.rows, seconds, strict=True)]
    found = predictor_fit.fit_communication(replace(cases, rows=known), FITTED)
    assert found.bandwidth_efficiency["tcp"] == pytest.approx(0.5, rel=0.1)
    assert replace(cases, rows=known).seconds(found) == pytest.approx(seconds, rel=0.05)


def of_sources(*biases: float, rows: int = 200) -> list[validate_predictor.Score]:
    """Sources with a bias each, whose rows scatter about it alike."""
    (row, *_) = made_up_rows().values()
    return [
        score(replace(row, source=f"source {number}"), float(np.exp(bias + x)), 1.0)
        for number, bias in enumerate(biases)
        for x in np.linspace(-0.2, 0.2, rows)
    ]


def bounds_of(**kinds: list[validate_predictor.Score]) -> dict[str, tuple[float, float]]:
    known = {("calibrated", kind): scores for kind, scores in kinds.items()}
    made = validate_predictor.Intervals(known).without("nobody")
    return {kind: (np.log(one.low), np.log(one.high)) for (_, kind), one in made.items()}


def test_sources_without_bias_leave_the_scatter_of_their_rows() -> None:
    found = bounds_of(node=of_sources(0.1, 0.1, 0.1))
    assert found["node"] == pytest.approx((0.1 - 0.18, 0.1 + 0.18), abs=0.002)


def test_a_new_source_may_have_a_bias_as_others_do_and_more_so_where_they_are_few() -> None:
    many = bounds_of(node=of_sources(*[-0.5, 0.5] * 20, rows=3))["node"]
    few = bounds_of(node=of_sources(-0.5, 0.5, -0.5, 0.5))["node"]
    assert 1.645 * 0.5 < many[1] < 1.15 * 1.645 * 0.5
    # Student's quantile with three degrees of freedom, and a mean that is known from four.
    assert few[1] == pytest.approx(2.353 * 0.577 * (1 + 1 / 4) ** 0.5, rel=0.05)
    assert few[0] == pytest.approx(-few[1], rel=0.01)


def test_several_nodes_borrow_the_spread_of_one_and_not_the_reverse() -> None:
    node, nodes = of_sources(-0.1, 0.1, -0.1, 0.1, 0.0), of_sources(-0.3, 0.3)
    both = bounds_of(node=node, nodes=nodes)
    assert both["node"] == bounds_of(node=node)["node"]
    assert both["nodes"][1] < bounds_of(nodes=nodes)["nodes"][1] / 2


def test_intervals_of_a_source_know_nothing_of_its_rows() -> None:
    mine = [replace(s, row=replace(s.row, source="mine")) for s in of_sources(3.0)]
    others = of_sources(-0.1, 0.0, 0.1)
    with_mine = validate_predictor.Intervals({("calibrated", "node"): others + mine})
    alone = validate_predictor.Intervals({("calibrated", "node"): others})
    assert with_mine.without("mine") == alone.without("nobody")
    assert validate_predictor.coverage(mine, with_mine, ("calibrated", "node")) == 0.0


def test_one_other_source_makes_no_interval() -> None:
    one = validate_predictor.Intervals({("calibrated", "node"): of_sources(0.0, 0.1)})
    assert one.without("source 0") == {}
    rows = one.known["calibrated", "node"]
    assert validate_predictor.coverage(rows, one, ("calibrated", "node")) is None
    assert validate_predictor.coverage(rows, one, ("blind", "node")) is None


def test_how_often_intervals_hold_is_told_apart_by_share_of_exchange() -> None:
    known = of_sources(-0.1, 0.0, 0.1)
    far = replace(known[0], row=replace(known[0].row, source="mine"), measured=100.0, share=0.3)
    near = replace(far, measured=1.0, share=0.05)
    intervals = validate_predictor.Intervals({("calibrated", "node"): known})
    found = validate_predictor.held_by_share("a", [near, far], intervals, ("calibrated", "node"))
    assert found == {
        "kind": "a",
        "up to 0.1": (1, 100.0),
        "up to 0.25": (0, None),
        "up to 1": (1, 0.0),
    }


def test_rows_left_out_by_their_value_can_be_scored_apart(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"row_id": "kept"},
        {"row_id": "high", "flag": "very_high;real_data;"},
        {"row_id": "two", "flag": "parameter_server;very_high;"},
        {"row_id": "unknown", "flag": "very_high", "model": "nobody's net"},
    )
    kept, left_out = public_rows.read(tmp_path)
    assert (list(kept), left_out["flag very_high"]) == (["kept"], 2)
    assert list(public_rows.flagged(tmp_path, "very_high")) == ["high"]


def score(
    row: public_rows.Row, measured: float, predicted: float, kind: str = "one"
) -> validate_predictor.Score:
    return validate_predictor.Score(
        row, kind, measured, predicted, predicted, 1.0, 0.0, 0.0, 0.0, 0.05
    )


def test_a_kind_without_rows_has_no_figures() -> None:
    empty = validate_predictor.summary("calibrated same", [], None)
    assert empty["rows"] == 0
    assert {value for key, value in empty.items() if key.endswith("percent")} == {None}
    nothing = validate_predictor.stall_seconds([], [], validate_predictor.Intervals({}))
    assert (nothing["rows"], nothing["interval_coverage_percent"]) == (0, None)


def test_pairs_that_peak_flops_cannot_order_are_counted_apart() -> None:
    (row, *_) = made_up_rows().values()
    layout = replace(row, nodes=2)
    slower = replace(row, gpu=gpus.find("t4"))
    found = validate_predictor.pairs(
        [score(row, 1.0, 1.0), score(layout, 2.0, 3.0), score(slower, 4.0, 2.0)]
    )
    assert found["rows"] == 1  # another number of workers is another case
    layout = replace(layout, gpus_per_node=1, nodes=1, inside=Link("pcie", 1e9))
    found = validate_predictor.pairs(
        [score(row, 1.0, 1.0), score(layout, 2.0, 3.0), score(slower, 4.0, 2.0)]
    )
    assert (found["rows"], found["pairs_of_equal_peak"]) == (3, 1)
    assert found["faster_named_of_equal_peak_percent"] == 100.0
    assert found["by_peak_flops_percent"] == 100.0
    assert found["faster_named_of_unequal_peak_percent"] == 50.0


def test_a_stall_in_seconds_is_as_uncertain_as_the_stall_and_one_gpus_time() -> None:
    rows = list(made_up_rows().values())
    single = next(row for row in rows if row.workers == 1)
    several = next(row for row in rows if row.single == single.id and row.nodes == 1)

    def of(source: str, alone: float, node: float) -> tuple[validate_predictor.Score, ...]:
        one = replace(single, id=f"{source} 1", source=source)
        more = replace(several, id=f"{source} 4", source=source, single=one.id)
        ratio = validate_predictor.Score(
            more, "one", node, 2.0 * alone, 2.0 * alone, alone, 0.0, 0.0, 0.0, 0.05
        )
        return score(one, alone, 1.0, "solo"), ratio

    # Others: one GPU takes 0.5 to 2 times as long as predicted, the ratio is exact.
    others = [of("a", 0.5, 1.0), of("b", 2.0, 4.0), of("c", 0.5, 1.0), of("d", 2.0, 4.0)]
    for seconds, held in ((0.6, 100.0), (50.0, 0.0)):
        solo, node = of("mine", seconds, 2 * seconds)
        solos, ratios = zip(*others, strict=True)
        intervals = validate_predictor.Intervals(
            {("blind", "solo"): list(solos), ("blind over solo", "node"): list(ratios)}
        )
        found = validate_predictor.stall_seconds([node], [solo], intervals)
        assert found["interval_coverage_percent"] == held


def test_the_command_prints_what_the_page_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {"lines": [{"kind": "a kind"}], "sources": [{"source": "somebody"}], "parts": ["part"]}
    monkeypatch.setattr(validate_predictor, "validate", lambda *_: dict(result))
    monkeypatch.setattr("sys.argv", ["validate_predictor.py", "--data", "nowhere"])
    validate_predictor.main()
    printed = capsys.readouterr().out
    assert "a kind" in printed and "somebody" in printed and "part" in printed
    monkeypatch.setattr("sys.argv", ["validate_predictor.py", "--data", "nowhere", "--json"])
    validate_predictor.main()
    document, last = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert json.loads(document) == {"sources": [{"source": "somebody"}], "parts": ["part"]}
    assert json.loads(last) == {"kind": "a kind"}
