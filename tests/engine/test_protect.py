"""Folders that are given back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.engine.protect import protected
from stash.errors import UsageError


def contents(folder: Path) -> dict[str, bytes | None]:
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoints"
    (folder / "old" / "deep").mkdir(parents=True)
    (folder / "best.pt").write_bytes(b"best")
    (folder / "old" / "deep" / "first.pt").write_bytes(b"first")
    (folder / "latest").symlink_to("best.pt")
    return folder


def test_whatever_happens_within_is_undone(folder: Path) -> None:
    before = contents(folder)
    times = {path: path.lstat().st_mtime_ns for path in folder.rglob("*.pt")}
    with protected([folder]):
        (folder / "best.pt").write_bytes(b"none")
        (folder / "old" / "deep" / "first.pt").unlink()
        (folder / "new" / "deep").mkdir(parents=True)
        (folder / "new" / "deep" / "one.pt").write_bytes(b"one")
        (folder / "latest").unlink()
        (folder / "latest").mkdir()
    assert contents(folder) == before
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*.pt")} == times
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoints"]


def test_a_link_that_points_elsewhere_points_back(folder: Path) -> None:
    """As training loops keep their newest checkpoint: the new target goes, the link must not."""
    (folder / "run").symlink_to("old")
    with protected([folder]):
        (folder / "newest.pt").write_bytes(b"newest")
        (folder / "new").mkdir()
        for name, target in (("latest", "newest.pt"), ("run", "new")):
            (folder / name).unlink()
            (folder / name).symlink_to(target)
    assert (folder / "latest").readlink() == Path("best.pt")
    assert (folder / "run").readlink() == Path("old")
    assert sorted(path.name for path in folder.iterdir()) == ["best.pt", "latest", "old", "run"]


def test_what_cannot_be_given_back_is_kept_and_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(before: Path, now: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("stash.engine.protect._undo", fail)
    with protected([folder]):
        (folder / "best.pt").write_bytes(b"none")
    kept = folder.with_name(".checkpoints.stash-kept")
    assert (kept / "best.pt").read_bytes() == b"best"
    assert f"no space left). It is kept in {kept}" in capsys.readouterr().err


def test_it_is_undone_after_an_error_and_a_folder_that_was_not_there_is_gone(
    folder: Path, tmp_path: Path
) -> None:
    before = contents(folder)
    with pytest.raises(KeyboardInterrupt), protected([folder, tmp_path / "runs"]):
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs" / "log").touch()
        (folder / "best.pt").unlink()
        raise KeyboardInterrupt
    assert contents(folder) == before and not (tmp_path / "runs").exists()


def test_a_folder_that_is_removed_comes_back(folder: Path) -> None:
    import shutil

    before = contents(folder)
    with protected([folder]):
        shutil.rmtree(folder)
    assert contents(folder) == before


def test_what_a_killed_run_has_left_is_not_overwritten(folder: Path) -> None:
    (folder.parent / ".checkpoints.stash-kept").mkdir()
    before = contents(folder)
    with pytest.raises(UsageError, match="left from a run that was killed"), protected([folder]):
        pytest.fail("never entered")
    assert contents(folder) == before
    assert (folder.parent / ".checkpoints.stash-kept").exists()


def test_a_file_is_no_folder(folder: Path) -> None:
    with pytest.raises(UsageError, match="takes folders"), protected([folder / "best.pt"]):
        pytest.fail("never entered")
    assert (folder / "best.pt").read_bytes() == b"best"
