"""Which files a data set reads, seen without its help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from stash.engine.opens import OpenRecorder
from workloads_for_tests.tiny import write_pictures

Read = Callable[[Path], Any]


class Files(Dataset[int]):
    """Reads one file a sample, in the given way."""

    def __init__(self, paths: list[Path], read: Read) -> None:
        self.paths = paths
        self.read = read

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        self.read(self.paths[index])
        return index


def with_pil(path: Path) -> Any:
    with Image.open(path) as picture:
        return picture.convert("RGB")


def with_memmap(path: Path) -> Any:
    return int(np.memmap(path, dtype=np.uint8, mode="r")[-1])


def with_open(path: Path) -> Any:
    with open(path, "rb") as file:
        return file.read()


def with_numpy(path: Path) -> Any:
    return np.fromfile(path, dtype=np.uint8)


def with_another_program(path: Path) -> Any:
    """As a library in C would: no Python code opens the file."""
    return subprocess.run(["cat", str(path)], stdout=subprocess.DEVNULL, check=True)


def files_seen(
    tmp_path: Path, dataset: Dataset[int], workers: int, data_folder: Path | None = None
) -> set[Path]:
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    recorder = OpenRecorder(None, run_folder, data_folder)
    loader = DataLoader(dataset, batch_size=2, num_workers=workers, worker_init_fn=recorder)
    with recorder.recording_here(workers == 0):
        assert len(list(loader)) == 3
    return set(recorder.files())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("read", [with_pil, with_memmap, with_open, with_numpy])
def test_every_file_that_a_data_set_opens_is_found(
    tmp_path: Path, read: Read, workers: int
) -> None:
    paths = sorted(write_pictures(tmp_path / "data", 6).glob("*.jpg"))
    assert files_seen(tmp_path, Files(paths, read), workers) == set(paths)


def test_files_that_are_not_opened_from_python_are_not_seen(tmp_path: Path) -> None:
    paths = sorted(write_pictures(tmp_path / "data", 6).glob("*.jpg"))
    assert files_seen(tmp_path, Files(paths, with_another_program), 0) == set()


def test_where_no_file_is_seen_all_of_the_data_folder_counts(tmp_path: Path) -> None:
    data = write_pictures(tmp_path / "data", 6)
    paths = sorted(data.glob("*.jpg"))
    (data / "deeper").mkdir()
    (data / "deeper" / "index").touch()
    seen = files_seen(tmp_path, Files(paths, with_another_program), 2, data)
    assert seen == {*paths, data / "deeper" / "index"}


def test_a_single_data_file_counts_where_its_opening_is_not_seen(tmp_path: Path) -> None:
    """Token files are mapped before loader workers are forked, so none of them opens it."""
    paths = sorted(write_pictures(tmp_path / "data", 1).glob("*.jpg")) * 6
    seen = files_seen(tmp_path, Files(paths, with_another_program), 0, paths[0])
    assert seen == {paths[0]}


def test_only_files_of_the_data_folder_count_where_one_is_given(tmp_path: Path) -> None:
    inside = write_pictures(tmp_path / "data", 3)
    outside = write_pictures(tmp_path / "elsewhere", 3)
    paths = [*inside.glob("*.jpg"), *outside.glob("*.jpg")]
    assert files_seen(tmp_path, Files(paths, with_open), 0, inside) == set(inside.glob("*.jpg"))


def test_links_to_data_elsewhere_count_as_data_of_the_folder(tmp_path: Path) -> None:
    """Data folders are often made of links, to files and to folders, into a larger one."""
    outside = sorted(write_pictures(tmp_path / "elsewhere", 6).glob("*.jpg"))
    data = tmp_path / "linked"
    (tmp_path / "data").mkdir()
    data.symlink_to(tmp_path / "data")
    (data / "more").symlink_to(tmp_path / "elsewhere")
    (data / "one.jpg").symlink_to(outside[0])
    (data / "two.jpg").write_bytes(outside[1].read_bytes())
    paths = [data / "one.jpg", data / "two.jpg", *(data / "more" / p.name for p in outside[2:])]
    assert files_seen(tmp_path, Files(paths, with_open), 0, data) == set(paths)


def test_code_and_what_the_kernel_makes_up_is_no_data(tmp_path: Path) -> None:
    code = tmp_path / "user.py"
    code.write_text("")
    paths = [code, Path("/proc/self/status"), Path(torch.__file__), Path(sys.executable)]
    paths += sorted(write_pictures(tmp_path / "data", 2).glob("*.jpg"))
    assert files_seen(tmp_path, Files(paths, with_open), 0) == set(paths[-2:])


def test_data_beside_the_interpreter_is_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    paths = sorted(write_pictures(tmp_path / "env-data", 6).glob("*.jpg"))
    assert files_seen(tmp_path, Files(paths, with_open), 0) == set(paths)


def test_files_that_are_written_are_no_data(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(6)]
    assert files_seen(tmp_path, Files(paths, lambda path: path.write_text("x")), 0) == set()


def test_nothing_is_noted_before_and_after(tmp_path: Path) -> None:
    (path, *_) = write_pictures(tmp_path / "data", 1).glob("*.jpg")
    recorder = OpenRecorder(None, tmp_path / "run", None)
    with_open(path)
    with recorder.recording_here(True):
        pass
    with_open(path)
    assert recorder.files() == ()


def test_the_users_own_worker_init_function_runs_as_well(tmp_path: Path) -> None:
    called: list[int] = []
    OpenRecorder(called.append, tmp_path / "run", None)(3)
    assert called == [3]
