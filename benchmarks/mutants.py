"""Would the tests notice? Mistakes are put into the shipped code one at a time; tests must fail.

    python benchmarks/mutants.py --named                      every mistake that has a name
    python benchmarks/mutants.py --random 100 --seed 3        a random sample
    python benchmarks/mutants.py --write docs                 both, and docs/mutants.md from them

With `--resume FILE` every verdict is appended to a file; a run that was stopped goes on from there.
A verdict is used again only while sources and tests are the same.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from mutant_runs import Mutant, Tree, Verdict, judged
from named_feed_mutants import EMULATION, FEEDS
from named_formula_mutants import FORMULAS
from named_mutants import PAPER_TRAPS, Patch
from named_timing_mutants import TIMING, WHO_AND_EXCHANGE
from random_mutants import MUTATED, random_mutants

NAMED: dict[str, Sequence[Patch]] = {
    "Traps of the paper's released scripts": PAPER_TRAPS,
    "Wrong numbers from right times": FORMULAS,
    "Wrong times": (*TIMING, *WHO_AND_EXCHANGE, *FEEDS, *EMULATION),
}
WANTED_OF_RANDOM = 0.9


def main() -> int:
    """Exit code 1 where a named mutant or too many random ones are missed."""
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the copy is removed
    everything = options.write is not None or not (options.named or options.random)
    named = [patch.mutant() for patches in NAMED.values() for patch in patches]
    sample = random_mutants(options.random or 100, options.seed)
    with tempfile.TemporaryDirectory(prefix="stash-mutants-") as folder:
        trees = [Tree(Path(folder) / str(number)) for number in range(options.jobs)]
        told = _run(trees, named, options.resume) if options.named or everything else []
        drawn = _run(trees, sample, options.resume) if options.random or everything else []
    if options.write is not None:
        (options.write / "mutants.md").write_text(_page(told, drawn, options.seed))
    return 0 if _is_good(told, drawn) else 1


def _run(trees: Sequence[Tree], mutants: Sequence[Mutant], resume: Path | None) -> list[Verdict]:
    verdicts = []
    for verdict in judged(trees, mutants, resume):
        verdicts.append(verdict)
        word = "caught" if verdict.caught else "MISSED"
        print(f"{word}  {verdict.name}  ({verdict.seconds} s) {verdict.by}", flush=True)
    print(f"caught {_caught(verdicts)} of {len(verdicts)}", flush=True)
    return verdicts


def _caught(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.caught for verdict in verdicts)


def _is_good(named: Sequence[Verdict], drawn: Sequence[Verdict]) -> bool:
    return _caught(named) == len(named) and _caught(drawn) >= WANTED_OF_RANDOM * len(drawn)


def _page(named: Sequence[Verdict], drawn: Sequence[Verdict], seed: int) -> str:
    """docs/mutants.md."""
    lines = [
        "# Would the tests notice?",
        "",
        "Mistakes are put into a copy of the shipped code, one at a time, and the tests of the "
        "room run on it. A mistake is",
        "*caught* when a test fails. Written by `make mutants` on "
        f"{datetime.now(timezone.utc):%Y-%m-%d}; do not edit.",
        "",
        "| | caught | wanted |",
        "|---|---|---|",
        f"| named mistakes | {_caught(named)} of {len(named)} | all |",
        f"| random mistakes (seed {seed}) | {_caught(drawn)} of {len(drawn)} "
        f"| at least {WANTED_OF_RANDOM:.0%} |",
        "",
    ]
    by_name = {verdict.name: verdict for verdict in named}
    for title, patches in NAMED.items():
        lines += [
            f"## {title}",
            "",
            "| mistake | what it gets wrong | noticed by |",
            "|---|---|---|",
        ]
        for patch in patches:
            verdict = by_name[patch.name]
            by = f"`{verdict.by}`" if verdict.caught else "**nothing**"
            lines.append(f"| {patch.name} | {patch.why} | {by} |")
        lines.append("")
    return "\n".join([*lines, *_random_part(drawn)]) + "\n"


def _random_part(drawn: Sequence[Verdict]) -> list[str]:
    lines = [
        "## Random mistakes",
        "",
        "One comparison, operator, number, return or call, changed at random, in the results room "
        "and in the measuring story.",
        "Text, annotations, decorators, assertions and arguments of errors are left out.",
        "",
        "| file | caught | drawn |",
        "|---|---|---|",
    ]
    total = Counter(verdict.path for verdict in drawn)
    caught = Counter(verdict.path for verdict in drawn if verdict.caught)
    lines += [f"| `{path}` | {caught[path]} | {total[path]} |" for path in MUTATED if total[path]]
    missed = [verdict for verdict in drawn if not verdict.caught]
    if missed:
        lines += ["", "Missed:", ""]
        lines += [f"- `{verdict.name}`" for verdict in missed]
    return lines


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--named", action="store_true", help="mistakes that have a name")
    parser.add_argument("--random", type=int, metavar="N", help="so many random ones")
    parser.add_argument("--seed", type=int, default=3, help="of the random sample")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="both, told in its mutants.md")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep verdicts here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
