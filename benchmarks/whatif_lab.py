"""Does what-if foresee our own measurements? Profile a setting, predict the others, compare.

Jobs with emulated devices: loaders that take a known time (1, 2 and 4 of them), a disk throttled
to 10-200 MB/s, and a page cache that keeps 0-100 % of the files (another process has mapped them).
Every setting is profiled once and predicted from the profiles of the others. Root is needed. Bars:
median error of the iteration time 5 %, worst 15 %.

    python benchmarks/whatif_lab.py [--only workers storage cache] [--kept FOLDER] [--short]

Profiles are kept in FOLDER, and those that are there are not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from children import end_with_us
from torch.utils.data import DistributedSampler
from truth_worlds import FACTORY, VARIABLE, World, write_files

import stash
from stash.lab import resources
from stash.results.profile import Profile

MEDIAN_BAR, WORST_BAR = 5.0, 15.0
LOADER_WORKERS = (1, 2, 4)
STORAGE_MB = (10, 20, 50, 100, 200)
CACHED_PERCENT = (0, 25, 50, 75, 100)
CACHE_STORAGE_MB = 20
WORLD = World(iteration_seconds=0.1, samples_per_batch=8, file_bytes=1 << 20)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One job as it is measured."""

    kind: str
    value: int  # loader workers, MB/s, or percent that is cached
    world: World
    steps: str
    workers: int = 1
    storage_mb: int | None = None
    cached_percent: int = 0

    @property
    def key(self) -> str:
        return f"{self.kind}-{self.value}"

    @property
    def step(self) -> str:
        """The step whose iteration time is predicted."""
        return "warm" if self.kind == "workers" else "cold"


def settings() -> list[Setting]:
    """Loader workers wait 160 ms a batch; files are read by two loader workers."""
    slow = replace(WORLD, prepare_seconds=0.16)
    reading = replace(WORLD, prepare_seconds=0.02, loader_workers=2)
    steps = "node,warm,cold"
    return [
        *(
            Setting(
                kind="workers",
                value=number,
                world=replace(slow, loader_workers=number),
                steps="node,warm",
                workers=2,
            )
            for number in LOADER_WORKERS
        ),
        *(
            Setting(kind="storage", value=rate, world=reading, steps=steps, storage_mb=rate)
            for rate in STORAGE_MB
        ),
        *(
            Setting(
                kind="cache",
                value=percent,
                world=reading,
                steps=steps,
                storage_mb=CACHE_STORAGE_MB,
                cached_percent=percent,
            )
            for percent in CACHED_PERCENT
        ),
    ]


def predicted_seconds(profile: Profile, target: Setting) -> float:
    """An iteration of the target, by what-if, from the profile of another setting."""
    if target.kind == "workers":
        found = stash.whatif(profile, num_workers=target.value)
        return found.steps["warm"].predicted_seconds_per_iteration
    if target.kind == "storage":
        found = stash.whatif(profile, storage=f"{target.value}MB/s")
        return found.steps["cold"].predicted_seconds_per_iteration
    assert profile.workload.data_bytes is not None
    size = profile.workload.data_bytes * target.value // 100
    later = stash.whatif(profile, cache=f"{size}B" if size else "0").later
    assert later is not None
    workers = profile.machine.workers_per_node
    return workers * profile.workload.batch_per_worker / later.predicted_samples_per_second


def main() -> None:
    options = _parse()
    chosen = [one for one in settings() if one.kind in options.only]
    options.kept.mkdir(parents=True, exist_ok=True)
    for one in chosen:
        path = options.kept / f"{one.key}.json"
        if not path.exists():
            text = measure(one, rounds=6 if options.short else options.rounds)
            path.write_text(text)
            print(f"measured {one.key}: {_measured(one, options.kept) * 1e3:.1f} ms", flush=True)
    report(chosen, options.kept)


def measure(one: Setting, *, rounds: int) -> str:
    """The profile of one setting, as JSON."""
    with (
        tempfile.TemporaryDirectory(prefix="stash-whatif-") as name,
        contextlib.ExitStack() as all_,
    ):
        folder, inside = Path(name), []
        world = one.world
        if one.storage_mb is not None:
            files = folder / "files"
            write_files(world, files)
            world = replace(world, files=str(files))
            inside = all_.enter_context(resources.storage(files, f"{one.storage_mb}MB/s")).inside
            all_.enter_context(held_in_memory(world, one.cached_percent))
        command = [*inside, sys.executable, "-m", "stash", "profile", FACTORY]
        command += ["--device", world.device, "--nproc-per-node", str(one.workers)]
        command += ["--num-workers", str(world.loader_workers), "--steps", one.steps]
        command += ["--max-rounds", str(rounds), "--out", str(folder / "profiles"), "--json"]
        environment = {**os.environ, VARIABLE: world.exported(), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, preexec_fn=end_with_us
        )
    if done.returncode:
        raise SystemExit((done.stderr or done.stdout)[-2000:])
    return done.stdout


@contextlib.contextmanager
def held_in_memory(world: World, percent: int) -> Iterator[None]:
    """This part of every batch stays in the page cache, whoever tries to evict it."""
    order = list(DistributedSampler(range(world.samples), num_replicas=1, rank=0))
    batch = world.samples_per_batch
    held = []
    for number in (n for place, n in enumerate(order) if place % batch < batch * percent // 100):
        with (Path(str(world.files)) / str(number)).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        held.append(mapped)
        mapped[:: mmap.PAGESIZE]  # pages that a process has mapped are not evicted
    try:
        yield
    finally:
        for mapped in held:
            mapped.close()


def report(chosen: list[Setting], kept: Path) -> None:
    """Every prediction beside its measurement, and whether the bars are met."""
    everything: list[float] = []
    for kind in dict.fromkeys(one.kind for one in chosen):
        own = [one for one in chosen if one.kind == kind]
        errors = []
        for base in own[:1] if kind == "cache" else own:
            profile = Profile.load(kept / f"{base.key}.json")
            for target in own:
                if target is not base:
                    errors.append(_compare(profile, base, target, kept))
        everything += errors
        print(json.dumps({"kind": kind, **_summary(errors)}))
    print(json.dumps({"kind": "all", **_summary(everything), "met": _met(everything)}))


def _compare(profile: Profile, base: Setting, target: Setting, kept: Path) -> float:
    measured, predicted = _measured(target, kept), predicted_seconds(profile, target)
    error = 100 * (predicted / measured - 1)
    print(
        json.dumps(
            {
                "from": base.key,
                "to": target.key,
                "measured_ms": round(1e3 * measured, 1),
                "predicted_ms": round(1e3 * predicted, 1),
                "error_percent": round(error, 1),
            }
        )
    )
    return abs(error)


def _measured(one: Setting, kept: Path) -> float:
    profile = Profile.load(kept / f"{one.key}.json")
    return profile.steps[one.step].seconds_per_iteration.estimate


def _summary(errors: list[float]) -> dict[str, float]:
    return {
        "predictions": len(errors),
        "median_error_percent": round(median(errors), 1),
        "worst_error_percent": round(max(errors), 1),
    }


def _met(errors: list[float]) -> bool:
    return median(errors) <= MEDIAN_BAR and max(errors) <= WORST_BAR


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = ("workers", "storage", "cache")
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--kept", type=Path, default=Path("whatif-lab"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--short", action="store_true", help="six rounds each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
