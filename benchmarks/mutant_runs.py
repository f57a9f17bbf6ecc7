"""Runs tests against a copy of the tree with one thing changed: do they notice?

Every mutant gets a process of its own, forked from one that has imported the heavy libraries
already, so that a mutant costs its tests and not the start of torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
HEAVY = ("numpy", "scipy.stats", "pydantic", "psutil", "hypothesis", "pytest", "torch.utils.data")
#: A mutant may make the story run for ever. One test takes a quarter of this at most.
MAX_TEST_SECONDS = 45
MAX_SECONDS = 120.0  # for all tests of a mutant
NOTHING = "nothing is changed"
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
        folder.mkdir()
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


def judged(
    trees: Sequence[Tree], mutants: Sequence[Mutant], resume: Path | None
) -> Iterator[Verdict]:
    """A verdict on each mutant, in the order in which they come; every tree has its own judge.

    With a file to resume, each mutant is judged once only.
    """
    known = remembered(resume)
    wanted = [*_no_mutants(mutants, len(trees)), *mutants]
    told = [known.get(trees[0].key(mutant)) for mutant in wanted]
    new = [mutant for mutant, verdict in zip(wanted, told, strict=True) if verdict is None]
    for verdict in itertools.chain(filter(None, told), _judges(trees, new)):
        if resume is not None and verdict.key not in known:
            with resume.open("a") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")
        if verdict.name != NOTHING:
            yield verdict
        elif verdict.caught:  # such tests would catch every mutant
            raise SystemExit(f"Tests fail without any mutant: {verdict.by}")


def _no_mutants(mutants: Sequence[Mutant], parts: int) -> list[Mutant]:
    """All tests without any change, dealt out to all judges."""
    path = mutants[0].path
    text = (ROOT / path).read_text()
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    dealt = [tests[part::parts] for part in range(parts)]
    return [Mutant(NOTHING, path, text, "", tuple(part)) for part in dealt if part]


def _judges(trees: Sequence[Tree], mutants: Sequence[Mutant]) -> Iterator[Verdict]:
    context = multiprocessing.get_context("fork")
    judges, readers = [], []
    try:
        for number, tree in enumerate(trees):
            reader, writer = context.Pipe(duplex=False)
            judge = context.Process(
                target=_judge, args=(tree, mutants[number :: len(trees)], writer)
            )
            judge.start()
            writer.close()
            judges.append(judge)
            readers.append(reader)
        while readers:
            for ready in wait(list(readers)):
                try:
                    yield ready.recv()  # type: ignore[union-attr]
                except EOFError:
                    readers.remove(ready)  # type: ignore[arg-type]
    finally:  # also when we are stopped
        for judge in judges:
            if readers:
                judge.terminate()
            judge.join()
    if any(judge.exitcode for judge in judges):
        raise SystemExit("A judge has failed; its words are above.")


def _judge(tree: Tree, mutants: Sequence[Mutant], writer: Connection) -> None:
    for mutant in mutants:
        writer.send(tree.judge(mutant))


def _in_child(folder: Path, tests: list[str], output: Path) -> None:
    os.setsid()  # so that a mutant that hangs is ended with all that it started
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(folder)
    sys.dont_write_bytecode = True  # a cached file would outlive its mutant
    os.environ.update(PYTHONPATH=str(folder / "src"), PYTHONDONTWRITEBYTECODE="1")
    sys.path.insert(0, str(folder / "src"))
    assert "stash" not in sys.modules, "a mutant would not be imported"
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
