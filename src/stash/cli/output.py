"""What commands read and print with: lists of words, consoles, documents as JSON, errors."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TextIO

from stash.report.characters import harmless

if TYPE_CHECKING:
    from rich.console import Console

    from stash.results.document import Model

NOTHING_MEASURED = (
    "No profile in {folder} yet. Measure one with `stash profile resnet18`, "
    "or look at one with `stash show --sample`."
)


def comma_separated(text: str | None) -> list[str] | None:
    """The words of an option such as `--clouds "aws, gcp"`; none where it was not given."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def report_console() -> Console:
    """For results, on standard output."""
    return _console(sys.stdout)


def progress_console() -> Console:
    """For progress and remarks, on standard error, so that results can be piped."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, markup=False, emoji=False, highlight=False)


def print_document(document: Model) -> None:
    """A document as JSON, the same text as in its file wherever the stream can carry it."""
    text = document.to_json()
    if not _is_utf8(sys.stdout):
        text = json.dumps(json.loads(text), indent=1)
    print(text)


def print_json(value: object) -> None:
    """Anything else as JSON."""
    print(json.dumps(value, indent=1))


def print_error(message: str, exit_code: int, *, as_json: bool) -> None:
    """An error where its reader looks for it: standard error, or standard output as JSON."""
    if as_json:
        print_json({"error": message, "exit_code": exit_code})
        return
    # Messages carry file names and texts from documents; none may steer a terminal.
    print(f"stash: {harmless(message, keep_newlines=True)}", file=sys.stderr)


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "ascii").lower().replace("-", "").startswith("utf8")
