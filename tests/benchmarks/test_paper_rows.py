"""What the page of the paper takes from other pages is what they say."""

from __future__ import annotations

from pathlib import Path

import paper_rows
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"


@pytest.mark.parametrize(
    ("row", "check"), [("C064", paper_rows.cached_speed), ("C078", paper_rows.latency_error)]
)
def test_a_figure_of_another_page_is_the_same_here(row: str, check: paper_rows.Check) -> None:
    (line,) = [one for one in PAGE.read_text("utf-8").splitlines() if one.startswith(f"| {row} ")]
    ours, verdict = check()
    assert line.endswith(f"| {ours} | {verdict} |"), "write the page anew: paper_claims.py --page"


def test_a_line_that_is_gone_is_named() -> None:
    with pytest.raises(SystemExit, match="has no line 'files on the moon'"):
        paper_rows._percentages("whatif.md", "files on the moon")
