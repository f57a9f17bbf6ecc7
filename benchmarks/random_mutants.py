"""Random mutants of the results room and the clock: one operator, number, return or call changed.

Left out because a change there can mean nothing: docstrings and all other text, annotations,
decorators, arguments of errors, assertions of what cannot be otherwise, and `strict=` of `zip`.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutant_runs import ROOT, Mutant

#: What is mutated, each with the tests of its room that need no worker.
STORED = (
    "tests/results/test_bounds.py",
    "tests/results/test_small_print.py",
    "tests/results/test_store.py",
    "tests/results/test_profile_document.py",
)
COMPUTED = (
    "tests/results/test_method_tables.py",
    "tests/results/test_stall_table.py",
    "tests/results/test_epochs_and_rates.py",
    "tests/results/test_checks.py",
    "tests/results/test_recording.py",
    "tests/results/test_estimates.py",
    "tests/results/test_estimates_by_hand.py",
    "tests/results/test_assembled_by_hand.py",
    "tests/results/test_small_print.py",
    "tests/results/test_statistics.py",
    "tests/results/test_student.py",
    "tests/results/test_cluster_checks.py",
    "tests/results/test_pace.py",
)
TIMED = (
    "tests/engine/test_measure.py",
    "tests/engine/test_loader_blocks.py",
    "tests/engine/test_story.py",
    "tests/engine/test_who_runs.py",
    "tests/engine/test_several_nodes.py",
)
MUTATED = {
    "src/stash/results/steps.py": (*COMPUTED, *TIMED),
    "src/stash/results/statistics.py": COMPUTED,
    "src/stash/results/student.py": COMPUTED,
    "src/stash/results/estimates.py": (*COMPUTED, *TIMED),
    "src/stash/results/assemble.py": COMPUTED,
    "src/stash/results/validity.py": COMPUTED,
    "src/stash/results/pace.py": COMPUTED,
    "src/stash/results/recording.py": (*COMPUTED, *TIMED),
    "src/stash/results/document.py": tuple(dict.fromkeys((*COMPUTED, *STORED))),
    "src/stash/results/profile.py": tuple(dict.fromkeys((*COMPUTED, *STORED))),
    "src/stash/results/store.py": STORED,
    "src/stash/engine/measure.py": TIMED,
}

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_OPPOSITE = {"max": "min", "min": "max", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Change:
    """One piece of a file's source and what stands there instead."""

    line: int
    start: int  # in the file's text
    end: int
    instead: str


def random_mutants(count: int, seed: int, root: Path = ROOT) -> list[Mutant]:
    """A sample of all mutants of the mutated files, the same for the same seed and sources."""
    every = [(path, change) for path in MUTATED for change in changes((root / path).read_text())]
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    return [_mutant(path, (root / path).read_text(), change) for path, change in chosen]


def changes(source: str) -> list[Change]:
    """Every change that can be made to a file."""
    return sorted(_Finder(source).found, key=lambda change: (change.start, change.instead))


def _mutant(path: str, source: str, change: Change) -> Mutant:
    text = source[: change.start] + change.instead + source[change.end :]
    before = " ".join(source[change.start : change.end].split())
    after = " ".join(change.instead.split())
    return Mutant(
        name=f"{Path(path).name}:{change.line} {before} -> {after}",
        path=path,
        text=text,
        change=f"{before} -> {after}",
        tests=MUTATED[path],
    )


class _Finder(ast.NodeVisitor):
    """Walks over what runs, and past what only tells."""

    def __init__(self, source: str) -> None:
        self.found: list[Change] = []
        self._source = source
        lines = source.encode().splitlines(keepends=True)
        self._offsets = [0]
        for line in lines:
            self._offsets.append(self._offsets[-1] + len(line))
        self.visit(ast.parse(source))

    def _instead(self, node: ast.expr | ast.stmt, instead: str) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        encoded = self._source.encode()
        start = self._offsets[node.lineno - 1] + node.col_offset
        end = self._offsets[node.end_lineno - 1] + node.end_col_offset
        first, last = len(encoded[:start].decode()), len(encoded[:end].decode())
        self.found.append(Change(node.lineno, first, last, instead))

    def _all_of(self, nodes: Iterator[ast.AST] | list[ast.expr] | list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._all_of([*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)])
        self._all_of(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._all_of(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Errors are told in words."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """What cannot be otherwise, said for readers and the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text."""

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._instead(node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and ast.unparse(node.value) != "None":
            self._instead(node, "return None")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for position, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                operators = [*node.ops[:position], other(), *node.ops[position + 1 :]]
                self._instead(node, _shown(ast.Compare(node.left, operators, node.comparators)))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _ARITHMETIC.get(type(node.op))
        if other is not None and not _is_text(node):
            self._instead(node, _shown(ast.BinOp(node.left, other(), node.right)))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._instead(node, _shown(ast.BoolOp(other, node.values)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._instead(node, _shown(node.operand))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _OPPOSITE:
            name = ast.Name(_OPPOSITE[node.func.id])
            self._instead(node, _shown(ast.Call(name, node.args, node.keywords)))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._instead(node, repr(not value))
        elif isinstance(value, int):
            self._instead(node, repr(value + 1))
        elif isinstance(value, float):
            self._instead(node, repr(2 * value if value else 1.0))


def _shown(node: ast.expr) -> str:
    """In brackets, so that what stands around it binds as before."""
    return f"({ast.unparse(ast.fix_missing_locations(node))})"


def _is_text(node: ast.BinOp) -> bool:
    """Whether strings are joined: those are messages."""
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str))
        for part in ast.walk(node)
    )
