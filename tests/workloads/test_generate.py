"""Generated data is realistic, the same everywhere, whole, and made once."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stash.errors import StashError
from stash.workloads.generate import (
    MANIFEST,
    cache_folder,
    default_data,
    generate_images,
    generate_tokens,
)
from stash.workloads.images import ImageFolder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_pictures_are_as_large_as_those_of_imagenet(tmp_path: Path) -> None:
    folder = generate_images(tmp_path / "pictures", count=24)
    sizes = [path.stat().st_size for path in folder.rglob("*.jpg")]
    assert min(sizes) > 50_000
    assert max(sizes) < 150_000
    assert 75_000 < np.mean(sizes) < 125_000
    assert max(sizes) > 1.2 * min(sizes)


def test_pictures_have_the_asked_count_size_and_classes(tmp_path: Path) -> None:
    folder = generate_images(tmp_path / "p", count=8, width=40, height=30, classes=3)
    images = ImageFolder(folder, 16)
    assert (len(images), len(images.classes)) == (8, 3)
    sizes = {Image.open(path).size for path in folder.rglob("*.jpg")}
    assert sizes == {(40, 30), (30, 40)}


def test_the_same_seed_makes_the_same_pictures_and_another_seed_others(tmp_path: Path) -> None:
    same = [
        generate_images(tmp_path / name, count=3, width=40, height=30, seed=seed)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    first, second, other = map(contents, same)
    assert first == second
    assert all(first[name] != other[name] for name in first if name.endswith(".jpg"))


def test_an_equal_request_is_served_from_what_is_there(tmp_path: Path) -> None:
    folder = generate_images(tmp_path / "p", count=2, width=8, height=8)
    before = folder.stat().st_ino
    generate_images(tmp_path / "p", count=2, width=8, height=8)
    assert folder.stat().st_ino == before


def test_what_is_there_is_used_also_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generate_tokens(tmp_path / "tokens", count=100)

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("stash.workloads.generate._only_one_process", refuse)
    assert generate_tokens(tmp_path / "tokens", count=100) == made


def test_data_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    folder = generate_images(tmp_path / "p", count=3, width=8, height=8)
    whole = contents(folder)
    pictures = sorted(folder.rglob("*.jpg"))
    pictures[0].unlink()
    pictures[1].write_bytes(b"")
    generate_images(folder, count=3, width=8, height=8)
    assert contents(folder) == whole


def test_what_an_interrupted_run_left_is_thrown_away(tmp_path: Path) -> None:
    left = tmp_path / ".p.partial" / "class_0000"
    left.mkdir(parents=True)
    (left / "picture_0000099.jpg").write_bytes(b"half")
    folder = generate_images(tmp_path / "p", count=2, width=8, height=8)
    assert len(list(folder.rglob("*.jpg"))) == 2
    assert not left.exists()


def test_workers_that_ask_at_the_same_time_get_one_data_set(tmp_path: Path) -> None:
    def ask(_: int) -> int:
        return generate_images(tmp_path / "p", count=8, width=64, height=48).stat().st_ino

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1


def test_other_peoples_files_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StashError, match="already holds other data"):
        generate_images(tmp_path, count=2)
    folder = generate_images(tmp_path / "p", count=2, width=8, height=8)
    with pytest.raises(StashError, match="already holds other data"):
        generate_images(folder, count=3, width=8, height=8)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_folder_that_cannot_be_written_is_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StashError, match="STASH_CACHE_DIR") as caught:
        generate_images(tmp_path / "file" / "p", count=1)
    assert str(tmp_path / "file" / "p") in caught.value.message


def test_the_manifest_says_what_was_asked_for(tmp_path: Path) -> None:
    folder = generate_images(tmp_path / "p", count=2, width=8, height=8, seed=5)
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["schema"] == "stash.data/1"
    assert manifest["request"]["seed"] == 5
    assert manifest["files"] == 2


def test_tokens_are_words_of_the_vocabulary_and_few_of_them_are_common(tmp_path: Path) -> None:
    path = generate_tokens(tmp_path / "t", count=50_000, vocabulary=30_522)
    tokens = np.fromfile(path, dtype="<u2")
    assert len(tokens) == 50_000
    assert tokens.min() >= 1
    assert tokens.max() < 30_522
    assert 0.4 < np.mean(tokens < 30_522**0.5) < 0.6


def test_the_default_data_of_a_small_model_is_small(tmp_path: Path) -> None:
    folder = default_data("vision", image_size=64, count=4, cache_dir=tmp_path)
    assert Image.open(next(folder.rglob("*.jpg"))).size in {(143, 107), (107, 143)}
    assert default_data("vision", image_size=64, count=4, cache_dir=tmp_path) == folder
    assert default_data("tokens", count=100, cache_dir=tmp_path).stat().st_size == 200


def test_the_cache_lies_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STASH_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "stash" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/stash/data")
    monkeypatch.setenv("STASH_CACHE_DIR", "/own")
    assert cache_folder() == Path("/own/data")
