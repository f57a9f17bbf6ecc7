"""Runs tests against a copy of the tree with one thing changed: do they notice?

Every mutant gets a process of its own, forked from one that has imported the heavy libraries
already, so that a mutant costs its tests and not the start of torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
HEAVY = ("numpy", "scipy.stats", "pydantic", "psutil", "hypothesis", "pytest", "torch.utils.data")
#: A mutant may make the story run for ever. One test takes a quarter of this at most.
MAX_TEST_SECONDS = 45
MAX_SECONDS = 120.0  # for all tests of a mutant
TESTS_FAILED, TESTS_BROKE = 1, 2  # exit codes of pytest; a mutant that cannot be imported breaks


@dataclass(frozen=True)
class Mutant:
    """One changed file, and the tests that ought to notice."""

    name: str
    path: str  # of the file, in the tree
    text: str  # of the whole file, changed
    change: str  # in words or as a line of a diff
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """What the tests said to one mutant."""

    name: str
    path: str
    change: str
    caught: bool
    by: str  # the first test that failed
    seconds: float
    key: str  # of mutant and tree: a verdict holds for nothing else


class Tree:
    """A copy of what tests need, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name)
        self._digest = _digest(folder)
        for library in HEAVY:
            importlib.import_module(library)

    def judge(self, mutant: Mutant) -> Verdict:
        """Put one mutant in, run its tests, take it out."""
        changed = self._folder / mutant.path
        original = changed.read_text()
        began = time.monotonic()
        changed.write_text(mutant.text)
        try:
            code, by = self._run_tests(mutant.tests)
        finally:
            changed.write_text(original)
        if code not in (0, TESTS_FAILED, TESTS_BROKE):
            raise SystemExit(f"pytest ended with {code} on {mutant.name}: {by}")
        return Verdict(
            name=mutant.name,
            path=mutant.path,
            change=mutant.change,
            caught=code != 0,
            by=by,
            seconds=round(time.monotonic() - began, 1),
            key=self.key(mutant),
        )

    def key(self, mutant: Mutant) -> str:
        """The same only for the same mutant of the same sources, judged by the same tests."""
        whole = hashlib.sha256("\n".join((self._digest, mutant.name, mutant.text)).encode())
        for test in mutant.tests:
            whole.update(test.encode() + (self._folder / test.split("::")[0]).read_bytes())
        return whole.hexdigest()[:16]

    def _run_tests(self, tests: Sequence[str]) -> tuple[int, str]:
        """The exit code of pytest and the first test that failed."""
        output = self._folder / "output.txt"
        process = multiprocessing.get_context("fork").Process(
            target=_in_child, args=(self._folder, list(tests), output)
        )
        process.start()
        try:
            process.join(MAX_SECONDS)
            if process.is_alive():
                return TESTS_FAILED, f"did not end within {MAX_SECONDS:.0f} s"
        finally:  # also when we are stopped: nothing of a mutant is left
            if process.is_alive() and process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
                process.join()
        return process.exitcode or 0, _first_failure(output.read_text(errors="replace"))


def remembered(path: Path | None) -> dict[str, Verdict]:
    """Verdicts of an earlier run, by their key."""
    if path is None or not path.exists():
        return {}
    verdicts = [Verdict(**json.loads(line)) for line in path.read_text().splitlines()]
    return {verdict.key: verdict for verdict in verdicts}


def judged(tree: Tree, mutants: Sequence[Mutant], resume: Path | None) -> Iterator[Verdict]:
    """A verdict on each mutant; with a file to resume, each is judged once only."""
    known = remembered(resume)

    def verdict_on(mutant: Mutant) -> Verdict:
        verdict = known.get(tree.key(mutant))
        if verdict is None:
            verdict = tree.judge(mutant)
            if resume is not None:
                with resume.open("a") as file:
                    file.write(json.dumps(asdict(verdict)) + "\n")
        return verdict

    nothing = verdict_on(_no_mutant(mutants))
    if nothing.caught:  # such tests would catch every mutant
        raise SystemExit(f"Tests fail without any mutant: {nothing.by}")
    for mutant in mutants:
        yield verdict_on(mutant)


def _no_mutant(mutants: Sequence[Mutant]) -> Mutant:
    path = mutants[0].path
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    return Mutant("nothing is changed", path, (ROOT / path).read_text(), "", tuple(tests))


def _in_child(folder: Path, tests: list[str], output: Path) -> None:
    os.setsid()  # so that a mutant that hangs is ended with all that it started
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(folder)
    sys.dont_write_bytecode = True  # a cached file would outlive its mutant
    os.environ.update(PYTHONPATH=str(folder / "src"), PYTHONDONTWRITEBYTECODE="1")
    sys.path.insert(0, str(folder / "src"))
    found = importlib.util.find_spec("stash")
    assert found is not None and str(found.origin).startswith(str(folder)), found
    import pytest

    quickly = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", f"--timeout={MAX_TEST_SECONDS}"]
    code = pytest.main([*quickly, *tests])
    sys.stdout.flush()
    os._exit(int(code))


def _first_failure(text: str) -> str:
    for line in text.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" - ")[0].split(" ", 1)[1]
    return text[-500:].strip().splitlines()[-1] if text.strip() else ""


def _digest(folder: Path) -> str:
    """Of the sources and of what tests share."""
    content = hashlib.sha256()
    for path in sorted([*folder.glob("src/**/*.py"), *folder.glob("tests/**/*.py")]):
        if not path.name.startswith("test_"):
            content.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return content.hexdigest()
