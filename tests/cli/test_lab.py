"""`stash lab` through its real entry point: up, run, list, down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from rooted import NEEDS_ROOT
from stash.cli.main import main

Captured = pytest.CaptureFixture[str]


def needs_root(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that makes a real lab."""
    for mark in NEEDS_ROOT:
        test = mark(test)
    return test


def _stash(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stash", "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@needs_root
def test_a_lab_stays_up_between_commands_until_it_is_taken_down(capsys: Captured) -> None:
    up = "lab up --hosts 2 --link 200mbit --cpus 1.5 --json"
    assert main(up.split()) == 0
    (lab,) = json.loads(capsys.readouterr().out)
    try:
        assert [host["name"] for host in lab["hosts"]] == ["h0", "h1"]
        done = _stash("run", "--lab", lab["name"], "--host", "h1", "--", "ip", "-br", "addr")
        assert lab["hosts"][1]["address"] in done.stdout
        done = _stash("run", "--lab", lab["name"], "--", "cat", "/proc/self/cgroup")
        assert lab["name"] in done.stdout  # limits hold for what is run
        assert _stash("run", "--lab", lab["name"], "--", "sh", "-c", "exit 7").returncode == 7
        assert main(["lab", "run", "--lab", lab["name"], "--host", "h9", "--", "true"]) == 2
        assert "no host 'h9'" in capsys.readouterr().err
        assert main(["lab", "list"]) == 0
        assert f"{lab['name']}  up" in capsys.readouterr().out
    finally:
        assert main(["lab", "down", lab["name"], "--json"]) == 0
    assert lab["name"] in json.loads(capsys.readouterr().out)["removed"]
    assert main(["lab", "list", "--json"]) == 0
    assert lab["name"] not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lab up", "An empty lab"),
        ("lab up --hosts 2 --link fast", "'fast' is not a rate"),
        ("lab up --memory 2GB/s", "is a rate, not a size"),
        ("lab down nothing-of-this-name", "no lab nothing-of-this-name"),
        ("lab run --lab nothing-of-this-name -- true", "lab"),
        ("lab", "Missing command"),
    ],
)
@needs_root
def test_wrong_usage_is_told_in_words(words: str, message: str, capsys: Captured) -> None:
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", ["lab up --hosts 2", "lab run -- true", "lab down"])
def test_without_root_one_sentence_says_so(
    words: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(words.split()) == 1
    error = capsys.readouterr().err
    assert "need root" in error and error.count("\n") == 1
