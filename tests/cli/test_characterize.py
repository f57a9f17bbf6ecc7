"""`stash characterize`: one command, one table, one document; every mistake is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stash.cli.main import main

HERE = ("macro", "--device", "emulated:v100", "--nproc-per-node", "2")


def characterize(*arguments: str, out: Path) -> int:
    return main(["characterize", *arguments, "--out", str(out), "--no-figures"])


def test_a_table_a_machine_within_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code = characterize(
        "macro", "--instances", "p3.16xlarge, 2x p3.8xlarge", "--models", "resnet50,vgg11",
        "--batches", "32,max", out=tmp_path,
    )  # fmt: skip
    page = capsys.readouterr().out
    assert code == 0
    assert "2x p3.8xlarge, predicted, $24.48 an hour" in page
    assert "network %" in page
    assert max(len(line) for line in page.splitlines()) <= 80
    assert (tmp_path / "study.csv").read_text().count("\n") == 1 + 8


def test_json_is_the_document_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("micro", "--instances", "paper", "--depths", "18,50,16", "--json")
    assert characterize(*arguments, out=tmp_path) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "stash.study/1"
    assert document == json.loads((tmp_path / "study.json").read_text())
    assert {one["machine"] for one in document["fits"]} == {"p3.16xlarge", "2x p3.8xlarge"}


def test_each_study_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("macro", "micro"):
        arguments = ["--instances", "p3.16xlarge", "--models", "resnet18", "--no-figures"]
        assert main(["characterize", kind, *arguments]) == 0
    for kind in ("macro", "micro"):
        document = json.loads((tmp_path / "stash-study" / kind / "study.json").read_text())
        assert document["kind"] == kind


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("macro", "--instances", "nowhere.large"), "Unknown instance"),
        (("macro", "--instances", "paper", "--models", "resnet19"), "resnet19"),
        (("macro", "--instances", "paper", "--batches", "many"), "--batches: 'many'"),
        (("micro", "--instances", "paper", "--repeats", "0"), "--repeats is 0"),
        (("micro", "--instances", "paper", "--depths", "17"), "--depths: 17"),
        (("micro", "--device", "emulated:v100", "--nproc-per-node", "1"), "needs --nproc-per-node"),
        (("macro", "--instances", "paper", "--dtype", "fp8"), "Unknown precision 'fp8'"),
        ((*HERE, "--dtype", "fp8"), "--dtype is fp32, amp or bf16, not 'fp8'"),
        ((*HERE, "--max-minutes", "-1"), "--max-minutes must be above 0, not -1"),
        ((*HERE, "--nproc-per-node", "-1"), "--nproc-per-node must be above 0, not -1"),
        (
            ("macro", "--instances", "paper", "--samples-per-core", "-5"),
            "--samples-per-core must be above 0",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert characterize(*arguments, out=tmp_path) == 2
    told = capsys.readouterr().err
    assert sentence in told and "Traceback" not in told


@pytest.mark.gang
@pytest.mark.proof
def test_this_machine_is_measured_once_and_stands_beside_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "micro", "--device", "emulated:v100:bytes=0.02", "--nproc-per-node", "2",
        "--models", "resnet10", "--repeats", "1", "--max-minutes", "0.05",
        "--instances", "p3.16xlarge", "--json",
    )  # fmt: skip
    assert characterize(*arguments, out=tmp_path) == 0
    first = json.loads(capsys.readouterr().out)
    here, rented = first["cells"]
    assert here["numbers"]["provenance"] == "emulated"
    assert rented["numbers"]["provenance"] == "predicted"
    assert set(here["numbers"]["steps"]) == {"solo", "unsynced", "node"}
    assert characterize(*arguments, out=tmp_path) == 0
    assert json.loads(capsys.readouterr().out)["cells"] == first["cells"]
