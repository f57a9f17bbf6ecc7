"""The report as one self-contained HTML page."""

from __future__ import annotations

from stash.report.page.build import page_of
from stash.report.page.save import save_page

__all__ = ["page_of", "save_page"]
