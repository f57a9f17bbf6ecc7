"""Reads a report's page as a person does: its text, its cards, its tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from profiles import noisy, profile_of
from stash.results.profile import Profile

MARKUP = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
    '"><svg onload=window.hacked=1>&lt;{{ 7*7 }}{% x %}\x1b[31m\u202e end'
)

VOID = {"meta", "link", "img", "br", "hr", "input"}


@dataclass
class Node:
    """One element of the page."""

    tag: str
    attributes: dict[str, str | None]
    children: list[Node | str] = field(default_factory=list)

    @property
    def classes(self) -> set[str]:
        return set((self.attributes.get("class") or "").split())

    def text(self) -> str:
        """What is read, with whitespace as a browser shows it."""
        parts = (one if isinstance(one, str) else one.text() for one in self.children)
        return " ".join(" ".join(parts).split())

    def all(self, tag: str = "", css_class: str = "") -> list[Node]:
        """Every element inside with this tag and class."""
        found = []
        for one in self.children:
            if isinstance(one, Node):
                if (not tag or one.tag == tag) and (not css_class or css_class in one.classes):
                    found.append(one)
                found += one.all(tag, css_class)
        return found

    def only(self, tag: str = "", css_class: str = "") -> Node:
        (found,) = self.all(tag, css_class)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Node("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self._open[-1].children.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def read(page: str) -> Node:
    """The page as a tree; an element that is not closed is an error."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader._open) == 1
    return reader.root


def cards_of(part: Node) -> dict[str, Node]:
    """The cards in a part of the page, by stall."""
    return {str(card.attributes["data-stall"]): card for card in part.all("details", "card")}


def hostile_profile() -> Profile:
    """Markup in every text of a document."""
    document = profile_of(noisy({"solo": 0.1, "node": 0.13, "warm": 0.2})).model_dump(by_alias=True)
    check = {"name": MARKUP, "status": "warn", "message": MARKUP, "next": MARKUP}
    for part in ("workload", "machine"):
        for name, value in document[part].items():
            if isinstance(value, str):
                document[part][name] = MARKUP
    document["machine"] |= {"devices": (MARKUP,), "instance": MARKUP}
    document["checks"] = (check, {**check, "status": "pass"})
    for part, known in (("stalls", "prep"), ("steps", "warm"), ("telemetry", "warm")):
        document[part][MARKUP] = dict(document[part][known])
    document["stalls"][MARKUP] |= {"part_of": MARKUP, "percent_of": MARKUP}
    document["run"] |= {"stopped_because": "failed", "message": MARKUP}
    document["id"] = MARKUP
    return Profile.model_validate(document)


def changed(profile: Profile, **parts: Any) -> Profile:
    """A profile with some of its parts replaced."""
    return profile.model_copy(update=parts)
