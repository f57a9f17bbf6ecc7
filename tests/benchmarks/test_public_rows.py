"""Public measurements are chosen by named reasons, and a fit finds constants that made the rows."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import predictor_fit
import public_rows
import pytest
import validate_predictor

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


def test_intervals_hold_on_the_rows_that_made_them() -> None:
    rows = list(made_up_rows().values())
    spread = np.linspace(0.8, 1.2, 200)
    scores = [
        validate_predictor.Score(rows[0], "one", float(x), 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.05)
        for x in spread
    ]
    (band,) = {(b.low, b.high) for b in validate_predictor.make_bands(scores, 0.05)}
    assert np.mean((spread >= band[0]) & (spread <= band[1])) == pytest.approx(0.9, abs=0.02)
