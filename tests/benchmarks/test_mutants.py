"""Mutants: those with a name still fit the sources, and random ones change only what runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from mutant_runs import ROOT
from mutants import NAMED
from named_mutants import Patch
from random_mutants import MUTATED, changes, random_mutants

PATCHES = [patch for patches in NAMED.values() for patch in patches]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_named_mutant_still_fits_its_place_and_its_tests_are_there(patch: Patch) -> None:
    mutant = patch.mutant()
    assert ast.unparse(ast.parse(mutant.text)) != ast.unparse(
        ast.parse((ROOT / mutant.path).read_text())
    )
    assert patch.tests
    for test in patch.tests:
        path, _, function = test.partition("::")
        assert f"def {function}" in (ROOT / path).read_text()


def test_no_two_mutants_have_one_name() -> None:
    assert len({patch.name for patch in PATCHES}) == len(PATCHES)


def test_a_piece_that_is_gone_or_no_longer_alone_is_told_with_its_mutant(tmp_path: Path) -> None:
    target = tmp_path / "src/stash/results/one.py"
    target.parent.mkdir(parents=True)
    patch = Patch("halved", "results/one.py", "x = 1", "x = 2", "why", ())
    for text in ("y = 1\n", "x = 1\nx = 1\n"):
        target.write_text(text)
        with pytest.raises(ValueError, match="halved"):
            patch.mutant(tmp_path)
    target.write_text("x = 1\n")
    assert patch.mutant(tmp_path).text == "x = 2\n"


def test_a_random_sample_is_the_same_for_the_same_seed_and_every_mutant_is_python() -> None:
    once, again, other = (random_mutants(40, seed) for seed in (3, 3, 4))
    assert once == again and once != other
    for mutant in (*once, *other):
        ast.parse(mutant.text)
        assert all((ROOT / test).is_file() for test in MUTATED[mutant.path])


SOURCE = '''
"""2 words."""
from dataclasses import dataclass

@dataclass(frozen=True)
class Box:
    """3 > 2."""
    width: int = 4

    def wider(self, other: "Box | None" = None) -> bool:
        print(f"{self.width + 1} wide")
        if other is None:
            raise ValueError("no " + "other", 5)
        return self.width > other.width and not list(zip([], [], strict=True))
'''


def test_random_changes_are_of_what_runs_and_never_of_words_and_types() -> None:
    found = {(SOURCE[c.start : c.end], c.instead) for c in changes(SOURCE)}
    print_call = 'print(f"{self.width + 1} wide")'
    condition = "self.width > other.width and not list(zip([], [], strict=True))"
    assert found == {
        ("4", "5"),
        (print_call, "pass"),
        ("other is None", "(other is not None)"),
        (f"return {condition}", "return None"),
        (condition, "(self.width > other.width or not list(zip([], [], strict=True)))"),
        ("self.width > other.width", "(self.width >= other.width)"),
        ("self.width > other.width", "(self.width <= other.width)"),
        ("not list(zip([], [], strict=True))", "(list(zip([], [], strict=True)))"),
    }
