"""Which characters reach a terminal: names become harmless text, whatever the encoding."""

from __future__ import annotations

from dataclasses import dataclass

from stash.results.harmless import harmless as harmless


@dataclass(frozen=True)
class Charset:
    """The characters that a stream can carry."""

    ascii_only: bool

    def safe(self, text: str, *, limit: int | None = None) -> str:
        """Text from a document, for a stream of this kind."""
        if self.ascii_only:
            text = harmless(text).encode("ascii", "backslashreplace").decode("ascii")
        return harmless(text, limit=limit)

    def mark(self, segment: str) -> str:
        """The character that draws one part of a bar; they differ without colour, too."""
        unicode_mark, ascii_mark = MARKS.get(segment, OTHER_MARK)
        return ascii_mark if self.ascii_only else unicode_mark


MARKS = {
    "compute": ("█", "#"),
    "contention": ("▚", "x"),
    "communication": ("▒", "="),
    "interconnect": ("▒", "="),
    "prep": ("░", "-"),
    "fetch": ("\N{BOX DRAWINGS LIGHT DIAGONAL UPPER RIGHT TO LOWER LEFT}", "/"),
}
OTHER_MARK = ("·", ".")
