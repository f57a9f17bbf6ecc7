"""Mistakes are told in words, with what to do next, before anything is started."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.running import TINY, assert_no_orphans, temporary_files_in
from stash.cli.main import main
from stash.errors import UsageError
from stash.hardware import gpus
from stash.launch.prepare import prepare
from stash.launch.request import Request
from workloads_for_tests.tiny import write_pictures

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data"), 16)


@pytest.fixture
def refused(tmp_path: Path, capsys: Captured) -> Any:
    def run(*arguments: object, out: Path | None = None) -> str:
        given = [str(argument) for argument in arguments]
        folder = out or tmp_path / "out"
        code = main(["profile", "--out", str(folder), *given])
        captured = capsys.readouterr()
        assert code == 2, captured
        assert "Traceback" not in captured.err and "report it as a bug" not in captured.err
        assert captured.out == "" and not list(tmp_path.glob("out/*"))
        return captured.err

    return run


def test_an_unknown_model_is_answered_with_the_nearest_names(refused: Any) -> None:
    assert "did you mean resnet18" in refused("resnet81")


def test_data_that_is_not_there_is_told(refused: Any, tmp_path: Path) -> None:
    assert str(tmp_path / "no") in refused("tinycnn", "--data", tmp_path / "no")
    (tmp_path / "empty").mkdir()
    assert "No picture" in refused("tinycnn", "--data", tmp_path / "empty")
    (tmp_path / "file").touch()
    assert "is not a folder" in refused("tinycnn", "--data", tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_data_that_may_not_be_read_is_told(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0)
    assert "cannot be listed" in refused("tinycnn", "--data", tmp_path / "locked")


def test_a_folder_of_nothing_but_damaged_pictures_is_named(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    for number in range(3):
        (tmp_path / "bad" / f"{number}.jpg").write_text("no picture")
    told = refused("tinycnn", "--data", tmp_path / "bad")
    assert f"None of the 3 pictures under {tmp_path / 'bad'}" in told


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (f"{TINY}:raises", "the licence server is down"),
        (f"{TINY}:returns_a_model", "returned a Sequential without 'name'"),
        (f"{TINY}:picture", "did you mean pictures"),
        (f"{TINY}:CLASSES", "is a int, not a function"),
        ("missing.py:factory", "There is no file missing.py"),
        (f"{TINY}:spoilt_data", "KeyError: 'no label for sample 0'"),
        (f"{TINY}:empty_data", "holds not one sample"),
    ],
)
def test_a_factory_that_does_not_work_is_told_by_what_it_did(
    refused: Any, spec: str, told: str
) -> None:
    message = refused(spec)
    assert told in message


def test_an_error_in_a_users_data_names_the_users_line(refused: Any) -> None:
    message = refused(f"{TINY}:spoilt_data")
    assert "tiny.py:" in message and "__getitem__" in message


def test_a_model_that_is_none_is_told(refused: Any, pictures: Path) -> None:
    message = refused(f"{TINY}:model_is_a_number", "--data", pictures)
    assert "returned 3 (int); expected a torch.nn.Module" in message


def test_options_that_a_users_own_loader_would_ignore_are_refused(
    refused: Any, pictures: Path
) -> None:
    message = refused(f"{TINY}:own_loader", "--data", pictures, "--num-workers", 4)
    assert "--num-workers would have no effect" in message


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--device", "tpu"], "There are: cpu, cuda, and emulated:<gpu>"),
        (["--device", "emulated:v1000"], "Nearest names: "),
        (["--steps", "solo,hot"], "'hot'"),
        (["--steps", ","], "There are: solo"),
        (["--steps", "staged"], "needs a CUDA device"),
        (["--steps", "solo", "--nproc-per-node", "1"], "two workers or more"),
        (["--nproc-per-node", "0"], "--nproc-per-node must be above 0"),
        (["--nproc-per-node", "two"], "Invalid value for '--nproc-per-node'"),
        (["--batch-size", "large"], "--batch-size is a number or `max`"),
        (["--batch-size", "0"], "--batch-size must be 1 or more"),
        (["--batch-size", "-4"], "--batch-size must be 1 or more"),
        (["--num-workers", "-1"], "--num-workers must be 0 or more"),
        (["--dtype", "fp8"], "--dtype is fp32, amp or bf16"),
        (["--half-width", "narrow"], "--half-width: 'narrow' is not a size such as 3%"),
        (["--half-width", "%"], "--half-width: '%' is not a size"),
        (["--half-width", "-1%"], "--half-width must be above 0"),
        (["--half-width", "nan"], "--half-width must be above 0"),
        (["--max-minutes", "0"], "--max-minutes must be above 0"),
        (["--max-minutes", "inf"], "--max-minutes must be above 0"),
        (["--timeout", "-1"], "--timeout must be above 0"),
        (["--max-usd", "1"], "needs a price"),
        (["--launches", "0"], "--launches must be above 0"),
        (["--sweep", "1,x"], "is not a list of worker counts such as 1,2,4"),
        (["--sweep", "0,1"], "is not a list of worker counts such as 1,2,4"),
        (["--warp-speed"], "No such option: --warp-speed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_that_makes_no_sense_is_answered_with_what_would(
    refused: Any, arguments: list[str], told: str, pictures: Path
) -> None:
    assert told in refused(f"{TINY}:pictures", "--data", pictures, *arguments)


def test_a_folder_that_cannot_be_written_is_told_before_measuring(
    refused: Any, tmp_path: Path, pictures: Path
) -> None:
    (tmp_path / "file").touch()
    message = refused(f"{TINY}:pictures", "--data", pictures, out=tmp_path / "file" / "below")
    assert "Cannot write profiles" in message and "--out" in message


def test_a_batch_that_does_not_fit_is_refused_with_the_largest_that_does(
    refused: Any, pictures: Path
) -> None:
    """The data set is smaller than the batch, which must not hide how large the batch is."""
    where = ["--data", pictures, "--device", "emulated:v100", "--nproc-per-node", 2]
    message = refused("resnet50", *where, "--batch-size", 4096)
    assert "at batch 4096 needs about" in message
    largest = int(message.split("--batch-size ")[1].split()[0])
    assert 32 <= largest < 4096


def test_the_largest_batch_is_found_and_used(pictures: Path) -> None:
    request = Request(
        workload="resnet18",
        data=pictures,
        device="emulated:v100",
        nproc_per_node=2,
        batch_size="max",
    )
    small, large = (
        prepare(replace(request, device=f"emulated:{gpu}")) for gpu in ("v100", "a100-sxm4-80gb")
    )

    def batch_of(script: tuple[str, ...]) -> int:
        return int(script[script.index("--batch-size") + 1])

    ratio = gpus.find("a100-sxm4-80gb").memory_bytes / gpus.find("v100").memory_bytes
    assert batch_of(large.script) / batch_of(small.script) == pytest.approx(ratio, rel=0.2)
    with pytest.raises(UsageError, match="would fit"):
        prepare(replace(request, batch_size=batch_of(small.script) + 16))


@pytest.mark.gang
def test_a_failure_in_a_worker_is_told_with_its_rank_and_its_last_lines(
    tmp_path: Path, capsys: Captured, pictures: Path
) -> None:
    spec = f"{TINY}:fails_in_a_worker"
    common = ["--data", str(pictures), "--nproc-per-node", "2", "--out", str(tmp_path / "out")]
    with temporary_files_in(tmp_path):
        code = main(["profile", spec, *common])
    told = capsys.readouterr().err
    assert code == 1
    assert "Worker 1 failed: FileNotFoundError: weights.pt" in told
    lines = told[told.index("Its last lines:") :]
    assert "tiny.py" in lines and 'raise FileNotFoundError("weights.pt")' in lines
    assert "nothing was saved" in told and "All logs: " in told
    assert_no_orphans(tmp_path)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("raise SystemExit('never started')")
    return path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batch-size", "4"], "--batch-size would have no effect"),
        (["--num-workers", "4", "--dtype", "bf16"], "--num-workers and --dtype would have no"),
        (["--device", "emulated:v100"], "can be emulated"),
        (["--data", "nowhere"], "there is no nowhere"),
        (["--steps", "solo", "--nproc-per-node", "1"], "need two workers"),
    ],
)
def test_what_a_script_decides_by_itself_is_refused(
    refused: Any, script: Path, arguments: list[str], told: str
) -> None:
    assert told in refused(script, *arguments)


def test_a_module_is_a_script_too(refused: Any) -> None:
    told = refused("-m", "package.train", "--batch-size", 4, "--", "--batch-size", 8)
    assert "--batch-size would have no effect" in told


def test_a_script_that_is_not_there_is_told(refused: Any, tmp_path: Path) -> None:
    assert f"There is no script {tmp_path / 'no.py'}" in refused(tmp_path / "no.py")


def test_arguments_of_a_script_are_not_for_the_zoo(refused: Any) -> None:
    assert "takes no arguments of its own" in refused("tinycnn", "--", "--epochs", "3")


def test_a_scripts_arguments_reach_it_as_they_are(script: Path) -> None:
    request = Request(
        workload=str(script), script_arguments=("--lr", "0.1", "--", "-m"), nproc_per_node=1
    )
    prepared = prepare(request)
    assert prepared.script_in(Path()) == (str(script), "--lr", "0.1", "--", "-m")
    assert prepared.plan.workload == "train.py"
    assert prepared.environment.get("OMP_NUM_THREADS") == os.environ.get("OMP_NUM_THREADS")
    module = prepare(replace(request, workload="package.train", is_module=True))
    assert module.script_in(Path()) == ("-m", "package.train", "--lr", "0.1", "--", "-m")
    assert module.plan.workload == "package.train"
