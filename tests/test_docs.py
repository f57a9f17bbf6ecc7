"""The documents: every command in them runs, every page is reached, every stall has one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stash.cli.main import main
from stash.cli.show import load_sample
from stash.results import store
from stash.results.steps import STALLS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    pages = sorted(DOCS.rglob("*.md"))
    blocks = [block for page in pages for block in CONSOLE.findall(page.read_text())]
    found = [line for block in blocks for line in block.splitlines() if line]
    return list(dict.fromkeys(found))


MEASURING = ("stash profile", "stash doctor")


@pytest.mark.parametrize("command", [c for c in commands() if not c.startswith(MEASURING)])
def test_every_command_in_the_documents_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store.save(load_sample(), tmp_path / "stash-profiles")
    program, *arguments = shlex.split(command)
    assert program == "stash"
    assert main(arguments) == 0


def test_python_on_the_api_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "api.md").read_text(), re.M | re.S)
    store.save(load_sample(), tmp_path, name="profile.json")
    assert len(blocks) == 3
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stderr
    assert "waiting: 0.369 (0.350 to 0.388) of the time" in run.stdout
    assert "Cannot read nowhere.json" in run.stdout


@pytest.mark.gang
@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("stash profile")])
def test_every_measurement_in_the_documents_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *arguments = shlex.split(command)
    short = ["--max-rounds", "2", "--nproc-per-node", "2", "--num-workers", "1"]
    assert main([*arguments, *short]) == 0
    assert len(list((tmp_path / "stash-profiles").glob("*.json"))) == 1


def test_every_stall_has_a_page_that_says_how_it_is_measured() -> None:
    for stall in STALLS:
        if stall.name == "noise":
            continue
        page = (DOCS / "stalls" / f"{stall.name}.md").read_text()
        (_, more), (_, less) = stall.terms
        assert f"`{more} - {less}`" in page and "## What to do" in page


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="pip install '.[docs]' enables it")
    site = tmp_path / "site"
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert not re.search(r"^WARNING", run.stderr, re.MULTILINE), run.stderr
    pages = {path.relative_to(site).parts[0] for path in site.rglob("index.html")}
    assert {"reading", "stalls", "zoo", "design"} <= pages
    for page in site.rglob("*.html"):
        asked = re.findall(r'(?:src|href)="(https?://[^"]+)"', page.read_text())
        loaded = [one for one in asked if re.search(r"\.(js|css|woff2?)$", one)]
        assert not loaded, f"{page} loads from elsewhere"
