"""Gives folders back as they were: checkpoints that a measured script wrote are undone.

A copy is made beside each folder first. It holds against every kind of writer, also compiled ones.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from stash.errors import UsageError

SUFFIX = ".stash-kept"


@contextlib.contextmanager
def protected(folders: Sequence[Path]) -> Iterator[None]:
    """Within, anything may happen to the folders; afterwards they are as before."""
    copies = {folder.absolute(): _copy_of(folder.absolute()) for folder in folders}
    for folder, copy in copies.items():
        _check(folder, copy)
    try:
        for folder, copy in copies.items():
            if folder.exists():
                shutil.copytree(folder, copy, symlinks=True)
        yield
    finally:
        for folder, copy in copies.items():
            _give_back(folder, copy)


def _copy_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{SUFFIX}")


def _check(folder: Path, copy: Path) -> None:
    if copy.exists():
        raise UsageError(
            f"{copy} is left from a run that was killed: it holds {folder.name} as it was. "
            "Move it back or remove it, then try again."
        )
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"--protect takes folders, and {folder} is none.")
    needed = sum(path.lstat().st_size for path in folder.rglob("*"))
    free = shutil.disk_usage(folder.parent).free
    if needed > free:
        raise UsageError(
            f"--protect: a copy of {folder} needs {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} "
            "GiB are free. Name another output folder by the script's own flags instead."
        )


def _give_back(folder: Path, copy: Path) -> None:
    if not copy.exists():
        shutil.rmtree(folder, ignore_errors=True)  # it was not there before
        return
    folder.mkdir(exist_ok=True)
    _undo(filecmp.dircmp(copy, folder, ignore=[], hide=[os.curdir, os.pardir]))
    shutil.rmtree(copy)


def _undo(compared: filecmp.dircmp[str]) -> None:
    """Remove what is new, restore what is missing or was written to."""
    before, now = Path(compared.left), Path(compared.right)
    for name in (*compared.right_only, *compared.common_funny):
        _remove(now / name)
    for name in (*compared.left_only, *compared.common_funny):
        _restore(before / name, now / name)
    for name in compared.common_files:
        if not filecmp.cmp(before / name, now / name, shallow=True):
            _restore(before / name, now / name)
    for below in compared.subdirs.values():
        _undo(below)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _restore(kept: Path, path: Path) -> None:
    if kept.is_dir() and not kept.is_symlink():
        shutil.copytree(kept, path, symlinks=True)
        return
    temporary = path.with_name(f".{path.name}{SUFFIX}")
    shutil.copy2(kept, temporary, follow_symlinks=False)
    temporary.replace(path)
