"""The documents: every command in them runs, every page is reached, every stall has one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from stash.cli.main import app, main
from stash.cli.show import load_sample
from stash.report.charts import pictures_of
from stash.results import store
from stash.results.steps import STALL_BY_NAME

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`!?(stash [^`]+)`")

#: Why a command of the documents is parsed and not run.
NOT_RUN = {
    "stash profile": "it measures for minutes; those of `console` blocks are run with two rounds",
    "stash doctor": "it measures for minutes; tests/cli runs it",
    "stash links": "it measures for minutes; tests/cli runs it",
    "stash lab": "it needs root; tests/cli runs it",
    "stash launch": "it starts jobs elsewhere",
    "stash characterize": "it measures for minutes",
    "stash catalog refresh": "it asks the network",
    "stash catalog import": "it needs a file of the reader's",
}
#: Words that stand for something of the reader's: DIR, FILE, A, and so on.
PLACEHOLDER = re.compile(r"(?<![\w.$-])[A-Z][A-Z_]*(?![\w.])")
#: Notation of the grammar, which no shell would take.
GRAMMAR = re.compile(r"\[|\.\.\.|COMMAND|,|…")


def blocks(*kinds: str) -> list[list[str]]:
    """Fenced blocks of these kinds, line by line, without what is said about the lines."""
    return [
        [re.split(r"\s{2,}|\s+#", line.strip())[0] for line in block.splitlines() if line.strip()]
        for page in PAGES
        for kind, block in BLOCK.findall(page.read_text())
        if kind in kinds
    ]


def lines(*kinds: str) -> list[str]:
    return list(dict.fromkeys(line for block in blocks(*kinds) for line in block))


def commands() -> list[str]:
    return [line for line in lines("", "console") if line.startswith("stash ")]


def sessions() -> list[str]:
    """What a reader types one after the other; in lists of commands, each is for itself."""
    typed = ["\n".join(line for line in block if runs(line)) for block in blocks("console")]
    alone = [line for line in lines("") if line.startswith("stash ") and runs(line)]
    return [one for one in dict.fromkeys([*typed, *alone]) if one]


def measurements() -> list[str]:
    return [line for line in lines("console") if line.startswith("stash profile")]


def runs(command: str) -> bool:
    return not command.startswith(tuple(NOT_RUN)) and not PLACEHOLDER.search(command)


def inline_commands() -> list[str]:
    texts = [BLOCK.sub("", page.read_text()).replace("\n", " ") for page in PAGES]
    found = [re.sub(r"\s+", " ", one) for text in texts for one in INLINE.findall(text)]
    return [one for one in dict.fromkeys(found) if not GRAMMAR.search(one)]


def parse(command: str) -> None:
    """Raises where the command, an option or a value is not known; runs nothing."""
    told = command.replace(" ... ", " resnet18 ")
    _, *arguments = shlex.split(re.sub(r"(--[a-z-]+) [A-Z]\b(?!:)", r"\1 1", told))
    found = typer.main.get_command(app)
    while isinstance(found, TyperGroup):
        name, *arguments = arguments
        inner = found.get_command(found.context_class(found), name)
        assert inner is not None, f"no command {name!r}"
        if not arguments and isinstance(inner, TyperGroup):
            return  # the name of a family of commands
        found = inner
    found.make_context(found.name, arguments)


@pytest.mark.parametrize("session", sessions())
def test_every_command_in_the_documents_runs(
    session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store.save(load_sample(), tmp_path / "stash-profiles")
    for command in session.splitlines():
        program, *arguments = shlex.split(command)
        assert program == "stash"
        assert main(arguments) == 0, command


@pytest.mark.parametrize("command", [c for c in commands() if not runs(c)])
def test_commands_that_a_test_cannot_run_are_right_at_least(command: str) -> None:
    parse(command)


@pytest.mark.parametrize("command", inline_commands())
def test_commands_in_sentences_are_right(command: str) -> None:
    try:
        parse(command)
    except Exception as error:
        # A sentence may name a command, or an option, without what belongs to it.
        assert type(error).__name__ in ("MissingParameter", "BadOptionUsage"), error


def test_a_wrong_command_would_be_noticed() -> None:
    for wrong in (
        "stash measure",
        "stash show --nothing",
        "stash report --advice",
        "stash lab fly",
    ):
        with pytest.raises((Exception, AssertionError)):
            parse(wrong)


def test_every_other_line_that_is_told_to_run_is_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    project = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    extras = re.findall(r"^([a-z]+) = \[", project.partition("\n[")[0], re.MULTILINE)
    for line in lines("", "console"):
        program, *arguments = line.split()
        if program == "make":
            assert arguments[0] in targets, line
        elif program == "pip" and "[" in line:
            assert set(re.findall(r"\[([a-z,]+)\]", line)[0].split(",")) <= set(extras), line
        elif program in ("python", ".venv/bin/python") and arguments[0].endswith(".py"):
            text = (ROOT / arguments[0]).read_text()
            options = [one.split("=")[0] for one in arguments if one.startswith("--")]
            assert all(f'"{option}"' in text for option in options), line


def test_the_report_on_the_front_page_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["show", "--sample"]) == 0
    (_, shown), *_ = BLOCK.findall((ROOT / "README.md").read_text())
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_pictures_in_the_documents_are_those_of_the_sample() -> None:
    drawn = {picture.name: picture.alone() for picture in pictures_of(load_sample())}
    for path in (DOCS / "pictures").iterdir():
        assert path.read_text() == drawn[path.stem], f"`stash report --sample` draws {path} anew"


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
@pytest.mark.parametrize("command", measurements())
def test_every_measurement_in_the_documents_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *arguments = shlex.split(command)
    short = ["--max-rounds", "2", "--nproc-per-node", "2", "--num-workers", "1"]
    assert main([*arguments, *short]) == 0
    assert len(list((tmp_path / "stash-profiles").glob("*.json"))) == 1


def test_every_stall_has_a_page_that_says_how_it_is_measured() -> None:
    for stall in STALL_BY_NAME.values():
        if stall.name == "noise":
            continue
        page = (DOCS / "stalls" / f"{stall.name}.md").read_text()
        (_, more), (_, less), *others = stall.terms
        told = f"({more} - {less}) - (" if others else f"{more} - {less}`"
        assert f"`{told}" in page and "## What to do" in page


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
