"""The truth suite: known stalls go in, the same stalls must come out.

Every experiment is one profile of a world whose stalls are known in closed form. Its result is
written to the folder as soon as it is there; experiments whose result lies there are not repeated,
unless what measures has changed since.
Disks that are throttled and links that are shaped need root.

    python benchmarks/truth.py --out FOLDER [--only NAME ...] [--minutes M]
    python benchmarks/truth.py --out FOLDER --write docs     the pages, renewed from that folder
    python benchmarks/truth.py --list
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import lab_cluster
from children import end_with_us
from recurrence import LINK_BURST, messages
from truth_experiments import Experiment, experiments
from truth_worlds import FACTORY, VARIABLE, WORKERS, World, write_files

from stash.lab import network, resources

HALF_WIDTH = "0.5%"
#: What coverage_by_kind.py has kept.
COVERAGE = Path(__file__).parent / "measured" / "coverage.jsonl"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
MEASURING_MODULES = ("truth", "truth_worlds", "truth_experiments", "recurrence", "lab_cluster")
MEASURING_ROOMS = ("lab", "launch", "engine", "workloads", "results", "hardware")
#: Longer than any profile here is meant to take.
HOSTS_SECONDS = 900.0


def main() -> None:
    options = _parse()
    chosen = _chosen(options.only)
    if options.list:
        print("\n".join(f"{one.name:30} {one.about}" for one in chosen))
    elif options.write:
        from truth_report import write_pages

        write_pages(options.out, options.write, options.coverage)
    else:
        run_all(chosen, options.out, options.minutes)


def run_all(chosen: Sequence[Experiment], folder: Path, minutes: float) -> None:
    """Every experiment that has no result yet; one that fails does not keep the others from it."""
    profiles = folder / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    failed = []
    for number, experiment in enumerate(chosen, start=1):
        path = folder / f"{experiment.name}.json"
        if path.exists() and json.loads(path.read_text()).get("sources") == sources():
            continue
        print(f"[{number}/{len(chosen)}] {experiment.name}", flush=True)
        try:
            result, profile = run(experiment, minutes)
        except ExperimentError as error:
            failed.append(experiment.name)
            print(f"  failed: {error}", flush=True)
            continue
        (profiles / path.name).write_text(json.dumps(profile))
        path.write_text(json.dumps(result, indent=1))
        print("  " + _line(result), flush=True)
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}. The same command tries them again.")


def sources() -> str:
    """Tells one state of all that measures, or says what is true, from another."""
    here = Path(__file__).parent
    files = [here / f"{name}.py" for name in MEASURING_MODULES]
    for room in MEASURING_ROOMS:
        folder = here.parent / "src" / "stash" / room
        files += [*folder.rglob("*.py"), *folder.glob("data/*")]
    whole = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files)))
    return whole.hexdigest()[:16]


class ExperimentError(Exception):
    """A profile that was not made."""


def run(
    experiment: Experiment, minutes: float, rounds: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Bring the world about and profile it: what was measured beside what is true; the profile."""
    began, measured_by = time.time(), sources()
    with (
        tempfile.TemporaryDirectory(prefix="stash-truth-") as folder,
        surroundings(experiment, Path(folder)) as where,
    ):
        profile = _profile(experiment, where, Path(folder), minutes, rounds)
    world = where.world
    result = {
        "name": experiment.name,
        "group": experiment.group,
        "kind": experiment.kind,
        "hides": experiment.hides,
        "about": experiment.about,
        "world": {**asdict(experiment.world), "link": experiment.link},
        "truth_seconds": {**world.truth(), "noise": 0.0},
        "measured": {
            name: {**stall["seconds_per_iteration"], "significant": stall["significant"]}
            for name, stall in profile["stalls"].items()
        },
        "iteration_seconds": world.iteration_seconds,
        "steps": {
            name: step["seconds_per_iteration"]["estimate"]
            for name, step in profile["steps"].items()
        },
        "wire": _wire(profile, world) if experiment.group == "links" else None,
        "rounds": profile["run"]["rounds"],
        "stopped": profile["run"]["stopped_because"],
        "warnings": [check["name"] for check in profile["checks"] if check["status"] == "warn"],
        "created": profile["created"],
        "sources": measured_by,
        "machine": {key: profile["machine"][key] for key in ("cpu", "cores", "system", "torch")},
        "seconds": round(time.time() - began, 1),
    }
    return result, profile


@dataclass(frozen=True)
class Surroundings:
    """A world with all that it needs on this machine."""

    world: World
    inside: list[str]  # in front of a command, these run it there
    environment: dict[str, str]
    hosts: Sequence[network.Host] = ()  # where there are several


@contextlib.contextmanager
def surroundings(experiment: Experiment, folder: Path) -> Iterator[Surroundings]:
    """Files on a throttled disk, and a slow link, where the experiment has them."""
    world = replace(experiment.world, marks=str(folder / "marks"))
    inside: list[str] = []
    environment: dict[str, str] = {}
    hosts: Sequence[network.Host] = ()
    with contextlib.ExitStack() as stack:
        if world.disk_bytes_per_second is not None:
            files = folder / "files"
            write_files(world, files)
            rate = f"{world.disk_bytes_per_second}B/s"
            disk = stack.enter_context(resources.storage(files, rate, workers=WORKERS))
            environment |= disk.environment
            world = replace(world, files=str(files))
        if experiment.link is not None and experiment.hosts > 1:
            joined = network.hosts(experiment.hosts, experiment.link, burst=LINK_BURST)
            hosts = stack.enter_context(joined)
            world = world.between_hosts(hosts[0].link)
        elif experiment.link is not None:
            host = stack.enter_context(network.loopback(experiment.link, burst=LINK_BURST))
            inside = host.inside
            environment |= host.environment
            world = world.on_link(host.link)
        environment[VARIABLE] = world.exported()
        yield Surroundings(world, inside, environment, hosts)


def _profile(
    experiment: Experiment,
    where: Surroundings,
    folder: Path,
    minutes: float,
    rounds: int | None,
) -> dict[str, Any]:
    world = where.world
    arguments = [FACTORY, "--device", world.device, "--nproc-per-node", str(WORKERS)]
    arguments += ["--num-workers", str(world.loader_workers), "--steps", ",".join(experiment.steps)]
    arguments += ["--half-width", HALF_WIDTH, "--max-minutes", str(minutes)]
    if rounds is not None:
        arguments += ["--max-rounds", str(rounds)]
    run = _run_on_hosts if where.hosts else _run_here
    profile: dict[str, Any] = json.loads(run(arguments, where, folder))
    if profile["run"]["rounds"] < 2:
        raise ExperimentError("One round has no interval; allow more --minutes.")
    return profile


def _run_here(arguments: Sequence[str], where: Surroundings, folder: Path) -> str:
    command = [*where.inside, sys.executable, "-m", "stash", "profile", *arguments]
    command += ["--out", str(folder / "profiles"), "--json"]
    environment = {**os.environ, **where.environment, **ONE_THREAD}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, preexec_fn=end_with_us
    )
    if done.returncode:
        raise ExperimentError((done.stderr or done.stdout)[-2000:])
    return done.stdout


def _run_on_hosts(arguments: Sequence[str], where: Surroundings, folder: Path) -> str:
    each = [{**where.environment, **ONE_THREAD}] * len(where.hosts)
    with lab_cluster.running(where.hosts, folder, arguments, environments=each) as nodes:
        codes = lab_cluster.wait(nodes, HOSTS_SECONDS)
        profile = nodes[0].profile()
        if any(code != 0 for code in codes) or profile is None:
            raise ExperimentError("\n".join(node.errors[-2000:] for node in nodes))
    return profile.to_json()


def _wire(profile: dict[str, Any], world: World) -> dict[str, float]:
    """Bytes that crossed the link in one iteration, beside what an all-reduce must send."""
    blocks = profile["steps"]["node"]["blocks"]
    iterations = sum(block["iterations"] + block["lead_in_iterations"] for block in blocks)
    sent = sum(block["disturbance"]["network_bytes"] for block in blocks) / iterations
    gradients = sum(message.bytes for message in messages(world.accelerator))
    return {
        "bytes_per_iteration": sent,
        "closed_form_bytes": WORKERS * gradients,
        "ratio": sent / (WORKERS * gradients),
    }


def _line(result: dict[str, Any]) -> str:
    """What was put in and what came out, in percent of an iteration."""
    whole = result["iteration_seconds"]
    parts = [
        f"{name} {100 * stall['estimate'] / whole:.2f} "
        f"({100 * stall['low'] / whole:.2f} to {100 * stall['high'] / whole:.2f}), "
        f"true {100 * result['truth_seconds'][name] / whole:.2f}"
        for name, stall in result["measured"].items()
        if name in result["truth_seconds"]
    ]
    end = f"{result['rounds']} rounds, {result['seconds']:.0f} s, stopped by {result['stopped']}"
    return "\n  ".join([*parts, end, *(f"warning: {name}" for name in result["warnings"])])


def _chosen(patterns: Sequence[str] | None) -> list[Experiment]:
    known = experiments()
    if not patterns:
        return known
    chosen = [
        one for one in known if any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)
    ]
    if not chosen:
        raise SystemExit(f"No experiment is called {' or '.join(patterns)}; --list tells them all.")
    return chosen


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("truth-results"), metavar="FOLDER")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these; * and ? as in file names")
    parser.add_argument("--minutes", type=float, default=4.0, help="at most, for one experiment")
    parser.add_argument("--write", type=Path, metavar="DOCS", help="write truth.md, .svg and .json")
    parser.add_argument(
        "--coverage", type=Path, default=COVERAGE, metavar="FILE", help="launches for that page"
    )
    parser.add_argument("--list", action="store_true", help="tell the experiments")
    return parser.parse_args()


if __name__ == "__main__":
    main()
