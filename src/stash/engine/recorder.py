"""The recording as a worker writes it: where it cannot, the run ends and says why."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from stash.errors import StashError
from stash.results.recording import AnyEvent, Recorder


class WorkerRecorder(Recorder):
    """Fails in words for the user."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        with _in_words(self._folder):
            super().__init__(path)

    def write(self, event: AnyEvent) -> None:
        """Append one event."""
        with _in_words(self._folder):
            super().write(event)


@contextlib.contextmanager
def _in_words(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StashError(
            f"Cannot record what is measured in {folder}: {error.strerror or error}. Complete "
            "rounds that are recorded are kept. Make room there, or choose another folder: TMPDIR, "
            "or --out where torchrun itself has started the workers"
        ) from None
