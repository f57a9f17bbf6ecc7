"""The store: whole files or none, nothing replaced unasked, profiles found as people name them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from profiles import profile_of
from stash.errors import StashError
from stash.results import store
from stash.results.profile import Profile


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_of()


def named(profile: Profile, **changes: object) -> Profile:
    return profile.model_copy(update=changes)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_saved_profile_reads_back_the_same(profile: Profile, tmp_path: Path) -> None:
    path = store.save(profile, tmp_path / "new" / "folder")
    assert Profile.load(path) == profile
    assert path.name == "20250304_050607-resnet18-2xcuda-3f2a9c01.json"


def test_a_profile_is_never_replaced_unasked(profile: Profile, tmp_path: Path) -> None:
    path = store.save(profile, tmp_path, name="one.json")
    before = path.read_bytes()
    with pytest.raises(StashError, match="without --force"):
        store.save(named(profile, id="other"), tmp_path, name="one.json")
    assert path.read_bytes() == before
    store.save(named(profile, id="other"), tmp_path, name="one.json", force=True)
    assert Profile.load(path).id == "other"


def test_nothing_but_profiles_is_left_behind(profile: Profile, tmp_path: Path) -> None:
    store.save(profile, tmp_path, name="one.json")
    with pytest.raises(StashError):
        store.save(profile, tmp_path, name="one.json")
    store.save(profile, tmp_path, name="one.json", force=True)
    assert names_in(tmp_path) == ["one.json"]


def full_disk(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_profile_that_its_folder_does_not_take_is_kept_in_the_next_best_place(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_folder, home = tmp_path / "file", tmp_path / "home"
    no_folder.touch()
    home.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(no_folder))
    monkeypatch.setenv("HOME", str(home))
    kept = store.keep(profile, no_folder, no_folder)
    assert kept.path.parent == home and Profile.load(kept.path) == profile
    assert kept.problem is not None and f"It was kept as {kept.path}." in kept.problem
    assert store.keep(profile, tmp_path / "out", tmp_path).problem is None
    beside = store.keep(profile, no_folder, tmp_path)
    assert beside.path.parent == tmp_path


def test_where_no_place_takes_a_profile_the_error_tells_where_its_rounds_are(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StashError, match=f"No space left.*`--resume {tmp_path}` goes on with them"):
        store.keep(profile, tmp_path / "out", tmp_path)


def test_a_crash_while_writing_leaves_no_half_profile(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(StashError, match="No space left"):
        store.save(profile, tmp_path)
    assert names_in(tmp_path) == []


def test_file_systems_without_hard_links_still_replace_nothing(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: object, target: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    path = store.save(profile, tmp_path, name="one.json")
    assert Profile.load(path) == profile
    with pytest.raises(StashError, match="without --force"):
        store.save(profile, tmp_path, name="one.json")
    assert names_in(tmp_path) == ["one.json"]


def test_a_folder_that_cannot_be_written_is_named_with_a_way_out(
    profile: Profile, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    for attempt in (
        lambda: store.ensure_writable(blocked / "inside"),
        lambda: store.save(profile, blocked / "inside"),
    ):
        with pytest.raises(StashError, match="--out") as caught:
            attempt()
        assert str(blocked) in caught.value.message
    store.ensure_writable(tmp_path / "fresh")
    assert names_in(tmp_path / "fresh") == []


def test_names_of_workloads_cannot_leave_the_folder(profile: Profile, tmp_path: Path) -> None:
    workload = profile.workload.model_copy(update={"name": "../../etc/passwd\x1b[31m"})
    path = store.save(named(profile, workload=workload), tmp_path)
    assert path.parent == tmp_path
    assert "/" not in path.name and "\x1b" not in path.name


def test_profiles_are_found_by_path_name_id_and_age(profile: Profile, tmp_path: Path) -> None:
    older = store.save(named(profile, id="aa11"), tmp_path)
    later = profile.created.replace(year=2026)
    newer = store.save(named(profile, id="ab22", created=later), tmp_path)
    renamed = store.save(profile, tmp_path, name="my-baseline.json")
    assert store.find(str(older), tmp_path) == older
    assert store.find(older.name, tmp_path) == older
    assert store.find("aa", tmp_path) == older
    assert store.find("ab2", tmp_path) == newer
    assert store.find("last", tmp_path) == newer
    assert store.find("my-baseline.json", tmp_path) == renamed
    assert [path for path, _ in store.entries(tmp_path)] == [renamed, older, newer]


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("a", "matches several"),
        ("zz", "is no profile"),
        ("", "is no profile"),
        ("x" * 5000, "is no profile"),
        ("last/../..", "is no profile"),
    ],
)
def test_a_reference_that_is_not_one_profile_says_so(
    profile: Profile, tmp_path: Path, reference: str, problem: str
) -> None:
    for name in ("aa11", "ab22"):
        store.save(named(profile, id=name), tmp_path)
    with pytest.raises(StashError, match=problem) as caught:
        store.find(reference, tmp_path)
    assert caught.value.exit_code == 2
    assert "stash list" in caught.value.message


def test_unreadable_files_are_entries_with_their_error(profile: Profile, tmp_path: Path) -> None:
    store.save(profile, tmp_path)
    (tmp_path / "torn.json").write_text('{"schema": "stash.prof')
    (tmp_path / "notes.txt").write_text("not a profile")
    found = dict(store.entries(tmp_path))
    assert len(found) == 2
    assert isinstance(found[tmp_path / "torn.json"], StashError)


def test_a_folder_that_is_not_there_is_an_empty_store(tmp_path: Path) -> None:
    assert store.entries(tmp_path / "nowhere") == []
    with pytest.raises(StashError, match="is no profile"):
        store.find("last", tmp_path / "nowhere")
