"""A gang on a link that is really slow: the communication stall follows the overlap recurrence."""

from __future__ import annotations

import os
import shutil

import overlap
import pytest

from stash.lab.network import loopback

pytestmark = [
    pytest.mark.gang,
    pytest.mark.proof,
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("tc") is None or shutil.which("ip") is None,
        reason="needs root and tc: run `make system` as root, then the tests as root",
    ),
]


def test_the_communication_stall_on_a_slow_link_follows_the_overlap_recurrence() -> None:
    """Loose bounds for a short, noisy run; benchmarks/overlap.py has the strict ones."""
    with loopback("125mbit") as host:
        found = overlap.run_case(host, "resnet18", 0.1, overlap.probe(host), minutes=0.2)
    assert found["measured_ms"][0] > 50
    assert 0.8 <= found["measured_over_recurrence"] <= 1.25
