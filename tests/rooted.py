"""What tests of the lab share: whether they can run here, and processes inside a lab."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stash.lab import cgroups


def _lab_works() -> bool:
    """Root alone is not enough: a container may withhold namespaces, or show groups read-only."""
    tools = ("ip", "tc", "nsenter", "unshare")
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in tools):
        return False
    if not all(os.access(hierarchy.path, os.W_OK) for hierarchy in cgroups.hierarchies()):
        return False
    return subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0


NEEDS_ROOT = [
    pytest.mark.root,
    pytest.mark.skipif(
        not _lab_works(),
        reason="needs root and iproute2: run `make system` as root, then the tests as root",
    ),
]


def output_of(inside: list[str], *command: str) -> str:
    """What a command prints inside a lab."""
    done = subprocess.run([*inside, *command], capture_output=True, text=True, check=True)
    return done.stdout


def python(inside: list[str], program: str, *arguments: str) -> str:
    """What a small program prints inside a lab."""
    return output_of(inside, sys.executable, "-I", "-c", program, *arguments)


def exists(pid: int) -> bool:
    """Whether a process still runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
