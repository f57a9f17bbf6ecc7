"""Mistakes with a name, put back into the shipped code one at a time; tests must notice each.

First the traps of the paper's released scripts, then other ways to compute a wrong number from
right times. Ways to measure wrong times are in named_engine_mutants.py.
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


def _reversed(stall: str, more: str, less: str) -> Patch:
    return Patch(
        f"{stall} is subtracted the wrong way round",
        "results/steps.py",
        f'"{stall}",\n        ((+1, "{more}"), (-1, "{less}")),',
        f'"{stall}",\n        ((+1, "{less}"), (-1, "{more}")),',
        f"{less} - {more}",
        (METHOD,),
    )


FORMULAS = (
    _reversed("interconnect", "node", "solo"),
    _reversed("contention", "unsynced", "solo"),
    _reversed("communication", "node", "unsynced"),
    _reversed("prep", "warm", "node"),
    _reversed("copy", "staged", "node"),
    _reversed("fetch", "cold", "warm"),
    _reversed("noise", "again", "node"),
    Patch(
        "prep is taken over unsynced",
        "results/steps.py",
        '((+1, "warm"), (-1, "node")),',
        '((+1, "warm"), (-1, "unsynced")),',
        "communication counts twice",
        (TABLE,),
    ),
    Patch(
        "mean over workers instead of the slowest",
        "results/recording.py",
        "return max(s for s in self.seconds if s is not None) / self.iterations",
        "known = [s for s in self.seconds if s is not None]\n"
        "        return sum(known) / len(known) / self.iterations",
        "a gang is as fast as its slowest worker",
        (RECORDING, TABLE),
    ),
    Patch(
        "the first worker speaks for all",
        "results/recording.py",
        "return max(s for s in self.seconds if s is not None) / self.iterations",
        "return (self.seconds[0] or 0.0) / self.iterations",
        "one slow worker is not seen",
        (RECORDING, TABLE),
    ),
    Patch(
        "a block's time is not divided by its iterations",
        "results/recording.py",
        "if s is not None) / self.iterations",
        "if s is not None)",
        "longer blocks read as slower steps",
        (RECORDING, TABLE),
    ),
    Patch(
        "a stall is a difference of estimates, not of rounds",
        "results/estimates.py",
        "for number in range(len(rounds))",
        "for number in [min(n, len(rounds) // 2) for n in range(len(rounds))]",
        "drift no longer cancels within a round",
        (ESTIMATES,),
    ),
    Patch(
        "shares of later epochs are taken of node",
        "results/steps.py",
        'for step in ("warm", "node", "unsynced", "solo", "cold")',
        'for step in ("node", "warm", "unsynced", "solo", "cold")',
        "a whole iteration includes its feed",
        (TABLE,),
    ),
    Patch(
        "the headline is a share of compute",
        "results/assemble.py",
        "times.relative(((+1, whole), (-1, alone)), whole)",
        "times.relative(((+1, whole), (-1, alone)), alone)",
        "waiting over compute can exceed the whole",
        (TABLE,),
    ),
    Patch(
        "fetch is a share of later epochs",
        "results/assemble.py",
        'later = None if stall.name == "fetch" else relative',
        "later = relative",
        "later epochs do not read from storage",
        (TABLE,),
    ),
    Patch(
        "dollars of one node for all",
        "results/assemble.py",
        "price * facts.machine.nodes",
        "price",
        "every node is rented",
        (TABLE,),
    ),
    Patch(
        "emulated is called measured",
        "results/assemble.py",
        "return Provenance.EMULATED if emulated else Provenance.MEASURED",
        "return Provenance.MEASURED",
        "provenance is blurred",
        (EPOCHS,),
    ),
    Patch(
        "a rate is a mean of rates",
        "results/assemble.py",
        "estimate=samples / seconds.value,",
        "estimate=samples / (seconds.low or seconds.value),",
        "rate and time of a step no longer agree",
        (EPOCHS,),
    ),
    Patch(
        "90 % intervals are called 95 %",
        "results/statistics.py",
        "CONFIDENCE = 0.95",
        "CONFIDENCE = 0.90",
        "one run in ten misses the truth",
        (STATISTICS,),
    ),
    Patch(
        "one-sided quantile",
        "results/statistics.py",
        "return _quantile((1 + confidence) / 2, self.degrees_of_freedom)",
        "return _quantile(confidence, self.degrees_of_freedom)",
        "an interval of 90 %",
        (STATISTICS,),
    ),
    Patch(
        "normal quantile for few rounds",
        "results/statistics.py",
        "return float(stats.t.ppf(probability, degrees_of_freedom))",
        "return float(stats.norm.ppf(probability))",
        "too narrow with five rounds",
        (STATISTICS,),
    ),
    Patch(
        "trimmed mean with the spread of what was kept",
        "results/statistics.py",
        "clipped: np.ndarray = np.clip(values, ordered[cut], ordered[len(values) - 1 - cut])",
        "clipped: np.ndarray = ordered[cut : len(values) - cut]",
        "dropping outliers from the spread too makes intervals narrow",
        (STATISTICS,),
    ),
    Patch(
        "rounds of all launches are pooled",
        "results/statistics.py",
        "    if len(arrays) > 1:\n",
        "    if len(arrays) > 1 and not use_mean:\n        arrays = [np.concatenate(arrays)]\n"
        "        centers = [center(arrays[0])]\n    if len(arrays) > 1:\n",
        "what differs between launches is not in the interval",
        (STATISTICS,),
    ),
    Patch(
        "nothing is ever intermittent",
        "results/statistics.py",
        "intermittent = iteration_seconds is not None and _has_parted(pooled, iteration_seconds)",
        "intermittent = False",
        "a stall on every fifth iteration is trimmed away",
        (STATISTICS, TABLE),
    ),
    Patch(
        "the mean always leads",
        "results/statistics.py",
        "    return _estimate(launches, use_mean=intermittent)",
        "    return _estimate(launches, use_mean=True)",
        "one disturbed round moves every stall",
        (STATISTICS,),
    ),
    Patch(
        "one-sided significance",
        "results/statistics.py",
        "not self.low <= 0 <= self.high",
        "self.low > 0",
        "a stall below zero is significant too",
        (TABLE, STATISTICS),
    ),
    Patch(
        "detectable without power",
        "results/statistics.py",
        "return (self._t(CONFIDENCE) + power_quantile) * self.standard_error",
        "return self._t(CONFIDENCE) * self.standard_error",
        "found in one run of two, not in four of five",
        (STATISTICS,),
    ),
    Patch(
        "numerator and denominator drift apart",
        "results/statistics.py",
        "[(t - value * b) / bottom.value for t, b in",
        "[t / bottom.value for t, b in",
        "a share's interval ignores that both parts drift together",
        (STATISTICS,),
    ),
    Patch(
        "the surest stall ends the run",
        "results/estimates.py",
        "return max(known) / self.iteration_seconds",
        "return min(known) / self.iteration_seconds",
        "others are not known well enough yet",
        (ESTIMATES,),
    ),
    Patch(
        "a profile is replaced unasked",
        "results/store.py",
        "        if force:\n",
        "        if True:\n",
        "an earlier measurement is lost",
        (STORE,),
    ),
    Patch(
        "a torn line ends the recording",
        "results/recording.py",
        "                    continue  # a torn line",
        "                    return  # a torn line",
        "the rounds behind it are lost",
        (RECORDING,),
    ),
    Patch(
        "rounds wait in a buffer",
        "results/recording.py",
        '        self._file.write(event.model_dump_json() + "\\n")\n        self._file.flush()',
        '        self._file.write(event.model_dump_json() + "\\n")',
        "a crash loses complete rounds",
        (RECORDING,),
    ),
    Patch(
        "unknown fields are let in",
        "results/document.py",
        'extra="forbid"',
        'extra="ignore"',
        "a misspelt field reads as absent",
        (DOCUMENT,),
    ),
)
