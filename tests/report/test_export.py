"""Exports: other tools read back the very numbers of the profile."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pages import hostile_profile
from profiles import HAND_WORKED, noisy, profile_of
from stash.cli.main import main
from stash.errors import StashError
from stash.report.export import scalars, tables, trackers
from stash.results import store
from stash.results.profile import Profile

PROFILE = profile_of(noisy(HAND_WORKED, rounds=6), machine_changes={"price_usd_per_hour": 3.06})


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_estimate_of_the_document_is_a_row() -> None:
    document = json.loads(PROFILE.to_json())

    def intervals(value: object, path: str = "") -> Iterator[tuple[str, float]]:
        if isinstance(value, dict):
            if set(value) == {"estimate", "low", "high"}:
                yield path, value["estimate"]
            for name, inner in value.items():
                yield from intervals(inner, f"{path}.{name}")

    wanted = sorted(number for _, number in intervals(document))
    found = sorted(float(row["estimate"]) for row in read_csv(all_numbers()))
    assert found == wanted and len(wanted) > 25


def all_numbers() -> str:
    return tables.as_csv(tables.number_rows(PROFILE))


def test_numbers_read_back_the_same_to_the_last_bit() -> None:
    rows = {(r["part"], r["name"], r["quantity"]): r for r in read_csv(all_numbers())}
    for name, stall in PROFILE.stalls.items():
        row = rows["stall", name, "seconds_per_iteration"]
        value = stall.seconds_per_iteration
        assert [float(row[c]) for c in ("estimate", "low", "high")] == [
            value.estimate, value.low, value.high,
        ]  # fmt: skip
        assert row["significant"] == str(stall.significant).lower()
        assert row["unit"] == "seconds" and row["profile"] == PROFILE.id


def test_every_worker_of_every_block_is_a_row() -> None:
    rows = read_csv(tables.as_csv(tables.block_rows(PROFILE)))
    assert tuple(rows[0]) == tables.BLOCK_COLUMNS
    assert len(rows) == 6 * (1 + 2 * 4)  # solo has one worker
    blocks = PROFILE.steps["warm"].blocks
    warm = [float(r["seconds"]) for r in rows if r["step"] == "warm" and r["worker"] == "1"]
    assert warm == [block.seconds[1] for block in blocks]


def test_a_name_is_no_formula_in_a_spreadsheet() -> None:
    profile = profile_of(workload_changes={"name": "=HYPERLINK(1)"})
    rows = read_csv(tables.as_csv(tables.number_rows(profile)))
    assert {row["workload"] for row in rows} == {"'=HYPERLINK(1)"}


def test_a_negative_number_stays_a_number() -> None:
    faster = profile_of([{**HAND_WORKED, "unsynced": 0.09}] * 3)
    rows = read_csv(tables.as_csv(tables.number_rows(faster)))
    assert min(float(row["estimate"]) for row in rows) < 0


@pytest.mark.parametrize("blocks", [False, True])
def test_parquet_holds_the_same_as_csv(tmp_path: Path, blocks: bool) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install '.[parquet]' enables it")
    rows_of = tables.block_rows if blocks else tables.number_rows
    columns = tables.BLOCK_COLUMNS if blocks else tables.NUMBER_COLUMNS
    path = tmp_path / "profile.parquet"
    tables.write_parquet(rows_of(PROFILE), columns, path, force=False)
    assert parquet.read_table(path).to_pylist() == list(rows_of(PROFILE))


def test_a_file_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "no").write_text("a file, not a folder")
    with pytest.raises(StashError, match=r"Cannot write .* writable folder"):
        tables.write_csv(tables.number_rows(PROFILE), tmp_path / "no" / "such.csv", force=True)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_is_there_is_not_replaced_unless_forced(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pip install '.[parquet]' enables it")
    path = tmp_path / f"mine.{kind}"
    path.write_text("annotated by hand")

    def write(*, force: bool) -> None:
        rows = tables.number_rows(PROFILE)
        if kind == "csv":
            tables.write_csv(rows, path, force=force)
        else:
            tables.write_parquet(rows, tables.NUMBER_COLUMNS, path, force=force)

    with pytest.raises(StashError, match="Will not overwrite"):
        write(force=False)
    assert path.read_text() == "annotated by hand"
    write(force=True)
    assert path.read_bytes() != b"annotated by hand"


def test_a_table_without_rows_has_its_columns() -> None:
    assert tables.as_csv([], ["step", "seconds"]) == "step,seconds\n"


def test_names_in_trackers_are_harmless() -> None:
    names = [*scalars.results(hostile_profile()), *scalars.facts(hostile_profile())]
    assert all(name == scalars.clean(name) and "<" not in name for name in names)


def test_tensorboard_reads_the_scalars(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="pip install '.[tensorboard]' enables it",
    )
    (run,) = trackers.to_tensorboard([PROFILE], tmp_path)
    events = accumulator.EventAccumulator(str(run), size_guidance={"tensors": 0})
    events.Reload()

    def values(tag: str) -> list[float]:
        from tensorboard.util.tensor_util import make_ndarray

        return [float(make_ndarray(one.tensor_proto)) for one in events.Tensors(tag)]

    share = PROFILE.stalls["prep"].share
    assert share is not None
    assert values("stall/prep/share") == pytest.approx([share.estimate], rel=1e-6)
    times = [block.seconds_per_iteration for block in PROFILE.steps["warm"].blocks]
    assert values("block/warm/seconds_per_iteration") == pytest.approx(times, rel=1e-6)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def mlflow_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real MLflow server on this machine, ended with the test."""
    pytest.importorskip("mlflow.server", reason="pip install '.[mlflow]' enables it")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    arguments = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    arguments += ["--backend-store-uri", f"sqlite:///{tmp_path}/runs.db"]
    arguments += ["--artifacts-destination", str(tmp_path / "artifacts")]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *arguments],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            start_new_session=True,
        )
    try:
        wait_for(f"{address}/health", server, tmp_path / "server.log")
        yield address
    finally:
        os.killpg(server.pid, 15)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, 9)
            server.wait()


def wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(1200):
        if server.poll() is not None:
            raise AssertionError(log.read_text())
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"no server after two minutes: {log.read_text()}")


@pytest.mark.proof
def test_a_real_mlflow_server_has_the_run(mlflow_server: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    path = store.save(PROFILE, tmp_path / "profiles")
    assert main(["export", str(path), "--mlflow", mlflow_server]) == 0
    client = MlflowClient(tracking_uri=mlflow_server)
    experiment = client.get_experiment_by_name("stash")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    share = PROFILE.stalls["prep"].share
    assert share is not None
    assert run.data.metrics["stall/prep/share"] == share.estimate
    assert run.data.metrics["stall/prep/share.high"] == share.high
    assert run.data.params["workload.name"] == "resnet18"
    assert run.data.tags["stash.provenance"] == "measured"
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "block/warm/seconds_per_iteration")
    times = [block.seconds_per_iteration for block in PROFILE.steps["warm"].blocks]
    assert [point.value for point in sorted(history, key=lambda one: one.step)] == times


def test_a_tracker_that_does_not_work_is_one_message(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="pip install '.[mlflow]' enables it")
    with pytest.raises(StashError, match="MLflow at no-such://server did not take the profiles"):
        trackers.to_mlflow([PROFILE], "no-such://server")
    (tmp_path / "file").write_text("")
    with pytest.raises(StashError, match="Cannot write"):
        trackers.to_tensorboard([PROFILE], tmp_path / "file")


def test_wandb_gets_an_offline_run(tmp_path: Path) -> None:
    """In a process of its own: in one that had run other tests, W&B once left an empty log."""
    pytest.importorskip("wandb", reason="pip install '.[wandb]' enables it")
    saved = store.save(PROFILE, tmp_path / "profiles")
    command = [sys.executable, "-m", "stash", "export", str(saved)]
    command += ["--wandb", str(tmp_path / "runs")]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=120)
    (record,) = (tmp_path / "runs").rglob("run-*.wandb")
    content = _without_chunks(record.read_bytes())
    for text in (b"stall/prep/share", b"block/warm/seconds_per_iteration", b"workload.name"):
        assert text in content
    share = PROFILE.stalls["prep"].share
    assert share is not None and repr(share.estimate)[:12].encode() in content


def _without_chunks(log: bytes) -> bytes:
    """The text of a log that cuts its records at blocks of 32 KiB, as LevelDB's does."""
    block, file_header, header = 1 << 15, 7, 7
    content, place = b"", file_header
    while place < len(log):
        left = block - place % block
        if left < header:
            place += left
            continue
        size = int.from_bytes(log[place + 4 : place + 6], "little")
        content += log[place + header : place + header + size]
        place += header + size
    return content


def test_export_needs_somewhere_to_export_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--sample"]) == 2
    assert "give --csv, --parquet" in capsys.readouterr().err


def test_the_command_writes_all_profiles_into_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def saved(identity: str) -> str:
        profile: Profile = PROFILE.model_copy(update={"id": identity})
        return str(store.save(profile, tmp_path / "profiles"))

    table = tmp_path / "numbers.csv"
    assert main(["export", saved("aaaa0000"), saved("bbbb1111"), "--csv", str(table)]) == 0
    assert capsys.readouterr().out == f"Written to {table}\n"
    assert {row["profile"] for row in read_csv(table.read_text())} == {"aaaa0000", "bbbb1111"}
    assert main(["export", "--sample", "--csv", str(table)]) == 1
    assert "without --force" in capsys.readouterr().err
    assert main(["export", "--sample", "--csv", str(table), "--json", "--force"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": [str(table)]}
