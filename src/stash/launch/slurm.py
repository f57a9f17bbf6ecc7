"""Slurm: an sbatch script that runs `stash profile` once on every node of a job.

The folder of the profile lies where all nodes see it, as the user's home does on most clusters.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from stash.errors import StashError, UsageError
from stash.launch.job import Job, required

#: In the job, before anything runs: the address by which Slurm itself reaches the first node.
_ENDPOINT = """\
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')
export STASH_ENDPOINT="$address:$((20000 + SLURM_JOB_ID % 10000))"
"""
#: Options of sbatch by which users say themselves which cores they want.
_ABOUT_CORES = {"cpus-per-gpu", "cpus-per-task", "exclusive", "mincpus", "oversubscribe"}
#: One task a node: it starts the node's workers itself. A node that fails is no reason for Slurm to
#: kill the first one, which is about to keep the rounds. A step has all cores that the job has on
#: its node unless it asks for some (--cpus-per-task), but Slurm would bind its task to one of them.
_SRUN = "srun --kill-on-bad-exit=0 --cpu-bind=none"
_WRITTEN = re.compile(r"^(?:\d+: )?Profile written to (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What sbatch should know beside the job."""

    out: Path
    partition: str | None = None
    account: str | None = None
    time: str | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None  # without it, and without such a directive: the whole node
    directives: tuple[str, ...] = ()  # further options of sbatch, such as qos=high
    setup: tuple[str, ...] = ()  # lines of shell before the command, such as module load
    python: str


def script(job: Job, options: SlurmOptions) -> str:
    """The text for sbatch."""
    out = str(options.out.absolute())
    command = job.command(
        [options.python, "-m", "stash"], '"$STASH_ENDPOINT"', '"$SLURM_NODEID"', ["--out", out]
    )
    lines = ["#!/bin/bash", *(f"#SBATCH {one}" for one in _directives(job, options))]
    # Not -u yet: what activates modules and environments often reads variables that are not set.
    lines += ["set -e", *options.setup, "set -u"]
    text = "\n".join(lines) + "\n"
    if job.nodes > 1:
        text += _ENDPOINT
    # `exec`, so that signals reach it.
    text += f"{_SRUN} bash -c {shlex.quote('exec ' + command)}\n"
    return text


def log_path(options: SlurmOptions, number: str) -> Path:
    """Where the job of this number writes."""
    return options.out.absolute() / f"slurm-{number}.log"


def _directives(job: Job, options: SlurmOptions) -> list[str]:
    out = str(options.out.absolute()).replace("%", "%%")
    given = {
        "job-name": job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "partition": options.partition,
        "account": options.account,
        "time": options.time,
        "gpus-per-node": options.gpus_per_node,
        "cpus-per-task": options.cpus_per_node,
        "output": f"{out}/slurm-%j.log",
    }
    lines = [f"--{name}={_word(str(value))}" for name, value in given.items() if value is not None]
    own = [one.lstrip("-").partition("=") for one in options.directives]
    if options.cpus_per_node is None and not _ABOUT_CORES & {name for name, _, _ in own}:
        lines.append("--exclusive")  # one core is what Slurm gives to a task that asks for none
    for name, equals, value in own:
        lines.append(f"--{_word(name)}" + (f"={_word(value)}" if equals else ""))
    return lines


def _word(text: str) -> str:
    """One word of an #SBATCH line, which knows quotes but neither escapes nor more lines."""
    if re.search(r"[\"\\\n\r]", text):
        raise UsageError(f"{text!r} cannot stand in an #SBATCH line: it has quotes or line ends.")
    return text if re.fullmatch(r"[\w./:,=@%+-]+", text) else f'"{text}"'


def submit(text: str, options: SlurmOptions, *, wait: bool) -> tuple[str, int]:
    """Hand the script to sbatch; the job's number and, after waiting, its exit code."""
    sbatch = required("sbatch", "Slurm")
    options.out.mkdir(parents=True, exist_ok=True)  # where its log is to be
    command = [sbatch, "--parsable", *(["--wait"] if wait else [])]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    number = done.stdout.strip().partition(";")[0]
    if not number.isdigit():
        told = done.stderr.strip() or done.stdout.strip()
        raise StashError(f"sbatch did not take the job: {told}")
    return number, done.returncode


def profile_of(options: SlurmOptions, number: str) -> Path:
    """The profile that a finished job has written, as its log tells."""
    log = log_path(options, number)
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        raise StashError(
            f"Cannot read the job's log {log}: {error.strerror or error}. --out must be a folder "
            "that this machine and all nodes share."
        ) from None
    written = _WRITTEN.findall(text)
    if not written:
        tail = "\n".join("  " + line for line in text.splitlines()[-15:])
        raise StashError(f"Job {number} wrote no profile. The last lines of {log}:\n{tail}")
    return Path(written[-1])
