"""Mistakes with a name, put back into the shipped code one at a time; tests must notice each.

Here are the traps of the paper's released scripts. Other ways to compute a wrong number from right
times are in named_formula_mutants.py, ways to measure wrong times in named_timing_mutants.py and
named_feed_mutants.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mutant_runs import ROOT, Mutant

TABLE = "tests/results/test_stall_table.py"
METHOD = "tests/results/test_method_tables.py"
EPOCHS = "tests/results/test_epochs_and_rates.py"
CHECKS = "tests/results/test_checks.py"
RECORDING = "tests/results/test_recording.py"
STATISTICS = "tests/results/test_statistics.py"
ESTIMATES = "tests/results/test_estimates.py"
DOCUMENT = "tests/results/test_profile_document.py"
STORE = "tests/results/test_store.py"
MEASURE = "tests/engine/test_measure.py"
WHO = "tests/engine/test_who_runs.py"
LOADING = "tests/engine/test_loader_blocks.py"
FEED = "tests/engine/test_feed.py"
TWIN = "tests/engine/test_twin.py"
_TRAPS = "tests/engine/test_traps.py"
MESSAGES = f"{_TRAPS}::test_an_iteration_sends_its_few_buckets_and_nothing_else"
RESIDENT = f"{_TRAPS}::test_replay_copies_nothing_to_the_device"
NO_ROOT = f"{_TRAPS}::test_nothing_is_done_by_sudo_and_nothing_is_ended_by_name"


@dataclass(frozen=True)
class Patch:
    """A piece of a file, what stands there instead, and what that gets wrong."""

    name: str
    path: str  # below src/stash
    old: str
    new: str
    why: str
    tests: tuple[str, ...]

    def mutant(self, root: Path = ROOT) -> Mutant:
        """The file with this mistake in it; the piece must stand there exactly once."""
        path = f"src/stash/{self.path}"
        text = (root / path).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {text.count(self.old)} places in {path}, not one")
        return Mutant(self.name, path, text.replace(self.old, self.new), self.why, self.tests)


PAPER_TRAPS = (
    Patch(
        "fetch adds a synthetic run",
        "results/steps.py",
        '((+1, "cold"), (-1, "warm")),',
        '((+1, "cold"), (-1, "warm"), (+1, "node")),',
        "fetch as cold - (warm - node): no stall at all prints 50 to 100 %",
        (TABLE,),
    ),
    Patch(
        "stalls are scaled, bases are not",
        "results/estimates.py",
        "sum(sign * column[launch][number] for sign, column in columns)",
        "sum(sign * column[launch][number] for sign, column in columns) / 2",
        "a division factor on stalls only",
        (TABLE,),
    ),
    Patch(
        "interconnect is a percentage of all workers' time",
        "results/steps.py",
        '((+1, "node"), (-1, "solo")),\n        "solo",',
        '((+1, "node"), (-1, "solo")),\n        "node",',
        "the paper divides by the time of one worker",
        (TABLE,),
    ),
    Patch(
        "one message per tensor",
        "workloads/train.py",
        "DistributedDataParallel(model, device_ids=devices)",
        "DistributedDataParallel(model, device_ids=devices, bucket_cap_mb=1e-6)",
        "a bucket size that is none: every tensor travels alone",
        (MESSAGES,),
    ),
    Patch(
        "replay copies to the device",
        "engine/feed.py",
        "        self._next_replay += 1\n        return batch",
        "        self._next_replay += 1\n        return self._device.resident(batch)",
        "data said to be on the device is copied there in every iteration",
        (RESIDENT,),
    ),
    Patch(
        "metrics are reduced in every iteration",
        "workloads/train.py",
        "            scaler.update()\n",
        "            scaler.update()\n            dist.all_reduce(value.detach())\n",
        "messages of the script's own, billed to the interconnect",
        (MESSAGES,),
    ),
    Patch(
        "negative stalls are clamped",
        "results/estimates.py",
        "        return statistics.estimate(self.combine(terms), iteration_seconds="
        "self.iteration_seconds)",
        "        combined = [[max(0.0, v) for v in row] for row in self.combine(terms)]\n"
        "        return statistics.estimate(combined, iteration_seconds=self.iteration_seconds)",
        "noise around zero turns into a stall",
        (TABLE,),
    ),
    Patch(
        "intervals are clamped at zero",
        "results/assemble.py",
        "low=None if value.low is None else value.low * factor,",
        "low=None if value.low is None else max(0.0, value.low * factor),",
        "an interval that holds zero must show it",
        (TABLE,),
    ),
    Patch(
        "repeats are summed and divided by one",
        "results/statistics.py",
        "        value=float(np.mean(centers)),",
        "        value=float(np.sum(centers)),",
        "several launches add up",
        (STATISTICS,),
    ),
    Patch(
        "stalls depend on the name of the instance",
        "results/assemble.py",
        "for s in stalls_of(times.steps)},",
        'for s in stalls_of(times.steps) if not (facts.machine.instance or "").startswith("p3")},',
        "what a machine is called says nothing about its stalls",
        (TABLE,),
    ),
    Patch(
        "cold by sudo",
        "engine/pagecache.py",
        "    if not can_evict():\n        return\n",
        "    os.system(\"sudo sh -c 'echo 3 > /proc/sys/vm/drop_caches'\")\n    return\n",
        "needs root, empties the cache of everybody, and its failure is ignored",
        (NO_ROOT,),
    ),
    Patch(
        "helpers are ended by name",
        "engine/host.py",
        "        psutil.wait_procs(children, timeout=5)",
        '        os.system("pkill -f free")',
        "ends what others have started",
        (NO_ROOT,),
    ),
    Patch(
        "cold is claimed without proof",
        "results/validity.py",
        "proven = COLD_PROVEN[0] <= cold <= COLD_PROVEN[1]",
        "proven = True",
        "a cache that was not emptied reads as a fast disk",
        (CHECKS,),
    ),
)
