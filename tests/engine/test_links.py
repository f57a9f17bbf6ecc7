"""Probing inside one worker: rounds, order, what is left out, and reads that are really cold."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stash.engine import links, pagecache
from stash.engine.devices import Cpu
from stash.engine.gang import Alone
from stash.engine.links import Probe, _Prober
from stash.engine.plan import LinksPlan, Plan
from stash.engine.readers import ColdReader
from stash.results.recording import End, LinkFacts, LinkRound, Recorder, RecordingReader


def prober(folder: Path, *, data: Path | None = None, **limits: float) -> _Prober:
    """One that has nobody to exchange with."""
    plan = Plan.model_validate({"steps": (), "workload": "links", "max_rounds": 3, **limits})
    wanted = LinksPlan(message_bytes=(4096,), folder=None if data is None else str(data))
    recorder = Recorder(folder / "recording.jsonl")
    return _Prober(plan, wanted, Alone(), Cpu(), folder, recorder)


def events(folder: Path) -> list[object]:
    return list(RecordingReader(folder / "recording.jsonl").new_events())


def rounds(folder: Path) -> list[LinkRound]:
    return [event for event in events(folder) if isinstance(event, LinkRound)]


def end_of(folder: Path) -> str:
    (end,) = [event for event in events(folder) if isinstance(event, End)]
    return end.reason


@pytest.fixture
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(links, "BLOCK_SECONDS", 1e-4)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.bin").write_bytes(os.urandom(10_000))
    (folder / "empty").touch()
    return folder


def test_every_round_probes_everything_once(
    small_copies: None, files: Path, tmp_path: Path
) -> None:
    prober(tmp_path, data=files).run()
    assert isinstance(events(tmp_path)[1], LinkFacts)
    assert len(rounds(tmp_path)) == 3 and end_of(tmp_path) == "rounds"
    for one in rounds(tmp_path):
        assert sorted(block.what for block in one.blocks) == ["memory", "storage"]
        (read,) = [block for block in one.blocks if block.what == "storage"]
        assert read.bytes <= 30_000 and read.seconds[0] is not None


def test_a_folder_without_files_is_said_and_the_rest_is_probed(
    small_copies: None, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    prober(tmp_path, data=empty).run()
    (facts,) = [event for event in events(tmp_path) if isinstance(event, LinkFacts)]
    (check,) = [check for check in facts.checks if check.name == "storage"]
    assert check.status == "warn" and "no file to read" in check.message
    assert [block.what for block in rounds(tmp_path)[0].blocks] == ["memory"]


def test_the_order_changes_from_round_to_round(
    small_copies: None, files: Path, tmp_path: Path
) -> None:
    prober(tmp_path, data=files, max_rounds=12).run()
    orders = {tuple(block.what for block in one.blocks) for one in rounds(tmp_path)}
    assert len(orders) == 2


def test_time_ends_it_after_a_whole_round(small_copies: None, tmp_path: Path) -> None:
    prober(tmp_path, max_seconds=0.0).run()
    assert len(rounds(tmp_path)) == 1 and end_of(tmp_path) == "max-minutes"


def test_messages_are_repeated_to_fill_a_block_and_left_out_where_they_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def lasting(seconds: float) -> Callable[[], None]:
        def move() -> None:
            nonlocal now
            now += seconds

        return move

    probes = [
        Probe("node", 4096, range(1), lasting(0.001)),
        Probe("node", 65536, range(1), lasting(0.2)),
        Probe("node", 1 << 20, range(1), lasting(1.5)),
        Probe("node", 4 << 20, range(1), lasting(0.01)),
        Probe("memory", 1 << 20, range(1), lasting(2.0)),
    ]
    calibrating = prober(tmp_path)
    kept = calibrating._calibrated(probes)
    (check,) = calibrating._checks
    assert [(one.what, one.bytes, one.repeats) for one in kept] == [
        ("node", 4096, 50),
        ("node", 65536, 1),
        ("memory", 1 << 20, 1),
    ]
    assert check.name == "sizes (node)" and str(1 << 20) in check.message


def test_devices_at_once_are_one_then_powers_of_two_then_all() -> None:
    assert links._counts(1) == [1]
    assert links._counts(6) == [1, 2, 4, 6]
    assert links._counts(8) == [1, 2, 4, 8]


def test_a_share_is_read_whole_across_files_and_no_further(files: Path) -> None:
    reader = ColdReader(files, 0, 1, makes_files=False)
    assert reader.bytes == 30_000
    before = _characters_read()
    reader.read()
    assert 30_000 <= _characters_read() - before < 31_000
    reader.bytes = 12_000
    before = _characters_read()
    reader.read()
    assert 12_000 <= _characters_read() - before < 13_000


def _characters_read() -> int:
    """What this process has asked files for, and its own question."""
    text = Path("/proc/self/io").read_text()
    return int(text.split()[1])


def test_workers_read_different_files(files: Path) -> None:
    shares = [ColdReader(files, worker, 2, makes_files=False).bytes for worker in range(2)]
    assert shares == [20_000, 10_000]


def test_made_files_are_read_from_storage_once_they_are_dropped(tmp_path: Path) -> None:
    if pagecache.remote_file_system(tmp_path) or not pagecache.can_evict():
        pytest.skip("files cannot be dropped from memory here")
    reader = ColdReader(tmp_path, 3, 4, makes_files=True)
    reader.bytes = 1 << 20
    reader.evict()
    reader.read()
    told = reader.storage_bytes()
    assert told is not None and told[1] == 1 << 20
    if told[0] == 0:
        pytest.skip("this folder lies in memory, not on a disk")
    assert told[0] >= told[1]
