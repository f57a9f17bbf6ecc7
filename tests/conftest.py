"""What all tests share: helpers that every folder can import, and a second chance for gangs."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

# What a shell starts in the background or by nohup is deaf to Ctrl-C and to hanging up, and so is
# all that it starts in turn.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

DRAWS = find_spec("jinja2") is not None and find_spec("vl_convert") is not None
#: These cannot even be imported without the packages that draw.
DRAWING_TESTS = [
    "test_docs.py",
    "cli/test_report.py",
    "report/test_browser.py",
    "report/test_page.py",
    "report/test_pictures.py",
    "report/test_same_numbers.py",
]
collect_ignore = [] if DRAWS else DRAWING_TESTS


def pytest_report_header() -> str | None:
    """What is left out is said."""
    return None if DRAWS else "No tests of the page and its charts: pip install '.[report]'"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with real workers may starve once on a busy machine; failing twice is a failure."""
    for item in items:
        if item.get_closest_marker("gang"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=5))
