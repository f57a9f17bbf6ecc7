"""How the command ends as a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDING = """
import atexit, sys
from stash.cli import main

def command():
    atexit.register(print, "what a library wants at the end")
    print("output", end="")
    return {code}

main.main = command
main.run()
"""


@pytest.mark.parametrize("code", [0, 3])
def test_the_code_the_output_and_what_libraries_want_at_the_end_are_kept(code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDING.format(code=code)], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    assert ended.stdout == "outputwhat a library wants at the end\n"


def test_a_reader_that_is_gone_is_no_success() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDING.format(code=0)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert process.stdout is not None
    process.stdout.close()
    process.communicate()
    assert process.returncode not in (0, 1)


def test_closed_output_is_no_error() -> None:
    command = f"exec {sys.executable} -c '{ENDING.format(code=0)}' >&- 2>&-"
    assert subprocess.run(["bash", "-c", command]).returncode == 0
