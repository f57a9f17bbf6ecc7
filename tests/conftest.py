"""What all tests share: helpers that every folder can import, and a second chance for gangs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with real workers may starve once on a busy machine; failing twice is a failure."""
    for item in items:
        if item.get_closest_marker("gang"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=5))
