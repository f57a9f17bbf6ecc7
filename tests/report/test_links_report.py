"""The links document on a terminal: its own numbers, in 80 columns, without surprises."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from links import events, links_of, moves
from stash.cli.main import main
from stash.report.links import link_lines, print_links
from stash.results import store
from stash.results.links import Links


def report(links: Links, *, encoding: str = "utf-8") -> str:
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    console = Console(file=buffer, width=80, markup=False, emoji=False, highlight=False)
    print_links(links, console)
    raw = buffer.buffer
    assert isinstance(raw, io.BytesIO)
    return raw.getvalue().decode(encoding)


def test_every_size_and_count_is_shown_with_its_numbers() -> None:
    links = links_of(events(more=(moves("memory", [4e9], 4), moves("memory", [2e9, 2e9], 4))))
    text = report(links)
    assert "All-reduce inside the first node: 4 workers, gloo" in text
    for size in ("4 KiB", "64 KiB", "1 MiB", "16 MiB"):
        assert size in text
    line = " ".join(text.split())
    assert re.search(r"latency 2\.0+ ms", line) and re.search(
        r"bus bandwidth 750(\.0+)? MB/s", line
    )
    assert "Memory copies" in text and "4.00 GB/s" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_show_takes_a_links_document_by_its_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store.save(links_of(), tmp_path)
    assert main(["show", "abcd", "--folder", str(tmp_path)]) == 0
    assert "All-reduce inside the first node" in capsys.readouterr().out
    assert main(["show", str(path), "--json"]) == 0
    assert capsys.readouterr().out.strip() == links_of().to_json()


def test_names_from_a_document_cannot_steer_a_terminal() -> None:
    links = links_of()
    evil = links.machine.model_copy(
        update={"host": "a\x1b[31mb", "torch": "2\x07", "device": "\x1b[2J", "backend": "\x1b]0;x"}
    )
    text = report(links.model_copy(update={"machine": evil}), encoding="ascii")
    assert "\x1b[" not in text and "\x1b]" not in text and "\x07" not in text


def test_a_profile_tells_of_its_links_in_a_line_each() -> None:
    links = links_of(events(more=(moves("storage", [1e8], 4), moves("storage", [5e7, 5e7], 4))))
    first, second = link_lines(links)
    assert first.startswith("all-reduce inside the first node: latency 2.0")
    assert second.startswith("Cold reads from storage: 100") and "2 at once" in second
