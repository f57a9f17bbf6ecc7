"""Gives folders back as they were: checkpoints that a measured script wrote are undone.

A copy is made beside each folder first. It holds against every kind of writer, also compiled ones.
"""

from __future__ import annotations

import contextlib
import filecmp
import shutil
import sys
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
            _try_to_give_back(folder, copy)


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


def _try_to_give_back(folder: Path, copy: Path) -> None:
    """What was measured meanwhile must not be lost for a folder that cannot be put right."""
    try:
        _give_back(folder, copy)
    except OSError as error:
        print(
            f"stash: --protect could not give {folder} back as it was ({error}). "
            f"It is kept in {copy}: move it back.",
            file=sys.stderr,
        )


def _give_back(folder: Path, copy: Path) -> None:
    if not copy.exists():
        shutil.rmtree(folder, ignore_errors=True)  # it was not there before
        return
    folder.mkdir(exist_ok=True)
    _undo(copy, folder)
    shutil.rmtree(copy)


def _undo(before: Path, now: Path) -> None:
    """Remove what is new, restore what is missing or was written to."""
    kept = {path.name for path in before.iterdir()}
    for path in now.iterdir():
        if path.name not in kept:
            _remove(path)
    for name in kept:
        if _is_folder(before / name) and _is_folder(now / name):
            _undo(before / name, now / name)
        elif not _is_same(before / name, now / name):
            _restore(before / name, now / name)


def _is_folder(path: Path) -> bool:
    """A folder itself, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _is_same(kept: Path, path: Path) -> bool:
    """Links are the same when they point to the same place, whatever is there."""
    if kept.is_symlink() or path.is_symlink():
        return kept.is_symlink() and path.is_symlink() and kept.readlink() == path.readlink()
    return kept.is_file() and path.is_file() and filecmp.cmp(kept, path, shallow=True)


def _remove(path: Path) -> None:
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _restore(kept: Path, path: Path) -> None:
    if _is_folder(kept) or _is_folder(path):
        _remove(path)
    if _is_folder(kept):
        shutil.copytree(kept, path, symlinks=True)
        return
    temporary = path.with_name(f".{path.name}{SUFFIX}")
    shutil.copy2(kept, temporary, follow_symlinks=False)
    temporary.replace(path)
