"""`stash report` through the real entry point: what it writes, refuses and misses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiles import HAND_WORKED, noisy, profile_of
from stash.cli.main import main
from stash.results import store

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store of one small profile."""
    monkeypatch.chdir(tmp_path)
    store.save(profile_of(noisy(HAND_WORKED, rounds=3)), tmp_path / "stash-profiles")
    return tmp_path


def test_report_writes_the_last_profile_beside_its_reader(folder: Path, capsys: Captured) -> None:
    assert main(["report"]) == 0
    assert capsys.readouterr().out == "Written to report.html\n"
    assert "Your 2 workers wait" in (folder / "report.html").read_text()
    assert main(["report"]) == 2
    assert "Will not overwrite report.html without --force" in capsys.readouterr().err
    assert main(["report", "3f2a", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"written": ["report.html"]}


def test_figures_alone_make_no_page(folder: Path, capsys: Captured) -> None:
    assert main(["report", "last", "--figures", "charts"]) == 0
    written = {path.name for path in (folder / "charts").iterdir()}
    assert {"stalls.svg", "stalls.png", "stalls.pdf"} <= written
    assert not (folder / "report.html").exists()


def test_a_profile_that_is_not_there_is_wrong_usage(folder: Path, capsys: Captured) -> None:
    assert main(["report", "last", "zzz"]) == 2
    assert "'zzz' is no profile" in capsys.readouterr().err
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(("package", "option"), [("vl_convert", "--figures=x"), ("jinja2", "-oy")])
def test_a_package_that_is_missing_is_named_with_how_to_get_it(
    package: str, option: str, folder: Path
) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None; "
        f"from stash.cli.main import main; sys.exit(main(['report', {option!r}]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 1
    assert f"({package})" in run.stderr and "pip install '.[report]'" in run.stderr
