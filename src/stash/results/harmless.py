"""Text from documents, scripts and other nodes, before it reaches a terminal."""

from __future__ import annotations


def harmless(text: str, *, limit: int | None = None, keep_newlines: bool = False) -> str:
    """Text with everything that could move a cursor, recolour or reorder a line made visible."""
    lines = text.split("\n") if keep_newlines else [text]
    shown = "\n".join(line if line.isprintable() else _visible(line) for line in lines)
    if limit is not None and len(shown) > limit:
        return shown[: limit - 3] + "..."
    return shown


def _visible(text: str) -> str:
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
