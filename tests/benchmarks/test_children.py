"""What a benchmark has started does not outlive it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import children
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")

CHILD = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("asked to end")))
print("started", flush=True)
signal.pause()
"""
BENCHMARK = """
import subprocess, sys
from children import end_with_us
subprocess.run([sys.executable, "-c", sys.argv[1]], preexec_fn=end_with_us)
"""


def test_a_benchmark_that_is_killed_asks_what_it_runs_to_end() -> None:
    benchmark = subprocess.Popen(
        [sys.executable, "-c", BENCHMARK, CHILD],
        cwd=Path(children.__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert benchmark.stdout is not None
    with benchmark:
        assert benchmark.stdout.readline() == "started\n"
        benchmark.kill()
        assert benchmark.stdout.read() == "asked to end\n"
