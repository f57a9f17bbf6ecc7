"""Puts the page where it was asked for, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from stash.errors import StashError
from stash.results import store


def save_page(page: str, target: Path, *, force: bool = False) -> Path:
    """Write the page; over a file that is there only where that is asked for."""
    try:
        store.write_whole(page, target, force=force)
    except FileExistsError:
        raise StashError(
            f"Will not overwrite {target} without --force; -o names another file.", exit_code=2
        ) from None
    except OSError as error:
        raise StashError(
            f"Cannot write {target}: {error.strerror or error}. Name another file with -o.",
            exit_code=2,
        ) from None
    return target
