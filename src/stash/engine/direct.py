"""A launch line of the user's own: `torchrun ... -m stash.engine.host [OPTIONS] SCRIPT.py ...`.

There is no launching process then: every worker makes the same plan from the same options, and
the first one turns the recording into the profile when it leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import secrets
import shutil
import signal
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from stash.engine.plan import RECORDING, Plan
from stash.errors import StashError, UsageError, check_positive, fraction
from stash.results import store
from stash.results.harmless import harmless
from stash.results.recording import RecordingReader
from stash.results.steps import STEP_BY_NAME, usual_steps

if TYPE_CHECKING:
    from stash.results.profile import Profile


class Terminated(BaseException):
    """torchrun ends the worker, because another one has failed or somebody asked it to."""


def say(words: str) -> None:
    """On standard error; what cannot be said there keeps no worker from its end.

    Its disk may be full, and a script may have put anything in its place.
    """
    with contextlib.suppress(Exception):
        print(harmless(words, keep_newlines=True), file=sys.stderr, flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of `stash profile` that are about measuring; not used beside --plan."""
    parser.add_argument("--out", type=Path, default=store.DEFAULT_FOLDER)
    parser.add_argument("--data", type=Path, help="folder or file that the script reads")
    parser.add_argument("--steps", help="only these, such as solo,node,warm")
    parser.add_argument("--half-width", default="3%", help="of an iteration: 3%% or 0.03")
    parser.add_argument("--max-minutes", type=float, default=10.0)
    parser.add_argument("--max-rounds", type=int)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds without an iteration")
    parser.add_argument("--price-usd-per-hour", type=float)
    parser.add_argument("--keep-tracking", action="store_true")
    parser.add_argument("--seed", type=int, default=0)


@dataclass(frozen=True)
class Direct:
    """One worker of such a launch."""

    plan: Plan
    run_folder: Path
    out: Path
    leads: bool

    @classmethod
    def start(cls, options: argparse.Namespace) -> Direct:
        """The plan, from the options that every worker is given alike."""
        return cls.prepare(_plan(options), options.out)

    @classmethod
    def prepare(cls, plan: Plan, out: Path) -> Direct:
        """A folder that all workers of this launch on this node share."""
        signal.signal(signal.SIGTERM, _terminate)  # complete rounds are kept
        run_folder = out.absolute() / f".run-{_launch_name()}"
        run_folder.mkdir(parents=True, exist_ok=True)
        leads = os.environ.get("RANK", "0") == "0"
        if leads:  # a launch of the same name may have been killed here
            (run_folder / RECORDING).unlink(missing_ok=True)
        return cls(plan, run_folder, out.absolute(), leads)

    def end(self, failure: str | None, quoting: str | None = None) -> None:
        """Tell of a failure; the first worker keeps what was measured, and tells where.

        Words that quote the script are for the terminal, the others for the profile.
        """
        if failure is not None:
            say(f"stash: {quoting or failure}")
        if not self.leads:
            if os.environ.get("LOCAL_RANK") == "0" != os.environ.get("GROUP_RANK", "0"):
                shutil.rmtree(self.run_folder, ignore_errors=True)  # another node's own
            return
        made = self._profile(failure)
        if made is None:
            say("stash: No round was completed, so there is nothing to report.")
        elif not self._keep(made):
            return
        shutil.rmtree(self.run_folder, ignore_errors=True)

    def _keep(self, made: Profile) -> bool:
        """Write the profile; whether it lies elsewhere than its recording, which may go then."""
        try:
            kept = store.keep(made, self.out, self.run_folder)
        except StashError as error:
            say(f"stash: {error.message}")
            return False
        if kept.problem is not None:
            say(f"stash: {kept.problem}")
        say(f"stash: {made.run.rounds} rounds; profile written to {kept.path}")
        say(f"stash: `stash show {kept.path}` prints the report")
        return kept.path.parent != self.run_folder

    def _profile(self, failure: str | None) -> Profile | None:
        """Of the complete rounds, where there are any."""
        from stash.results.assemble import Outcome, Recording, assemble

        recording = Recording()
        recording.add(RecordingReader(self.run_folder / RECORDING).new_events())
        if not recording.rounds or not recording.facts:
            return None
        outcome = Outcome(
            id=secrets.token_hex(4),
            created=datetime.now(timezone.utc).replace(microsecond=0),
            half_width_asked=self.plan.half_width,
            failure=failure,
        )
        return assemble(recording, outcome)


def _launch_name() -> str:
    """The same for all workers of this launch on this node, and for no others.

    Nodes, and pods that run at the same time, may share a folder; in a pod every torchrun may have
    the same process number.
    """
    variables = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
    parts = [platform.node(), str(os.getppid()), *(os.environ.get(one, "") for one in variables)]
    node = os.environ.get("GROUP_RANK", "0")
    return f"{node}-{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:12]}"


def _plan(options: argparse.Namespace) -> Plan:
    import torch

    check_positive(
        {
            "--max-minutes": options.max_minutes,
            "--max-rounds": options.max_rounds,
            "--timeout": options.timeout,
            "--price-usd-per-hour": options.price_usd_per_hour,
        }
    )
    workers = int(os.environ.get("WORLD_SIZE", "1"))
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", workers))
    nodes = max(1, workers // per_node)
    if nodes * per_node != workers:
        raise UsageError("Stash needs equally many workers on all nodes (--nproc-per-node).")
    cuda = torch.cuda.is_available()
    steps = usual_steps(per_node, has_cuda=cuda, nodes=nodes)
    if options.steps is not None:
        steps = tuple(step.strip() for step in options.steps.split(","))
        unknown = [step for step in steps if step not in STEP_BY_NAME]
        if unknown:
            raise UsageError(f"--steps: {unknown}. There are: {', '.join(STEP_BY_NAME)}.")
    return Plan(
        seed=options.seed,
        steps=steps,
        half_width=fraction("--half-width", options.half_width),
        max_rounds=options.max_rounds,
        max_seconds=options.max_minutes * 60.0,
        timeout_seconds=options.timeout,
        workload=Path(options.arguments[0]).name,
        data="" if options.data is None else str(options.data),
        data_folder=None if options.data is None else str(options.data.absolute()),
        device="cuda" if cuda else "cpu",
        keep_tracking=options.keep_tracking,
        price_usd_per_hour=options.price_usd_per_hour,
        nodes=nodes,
    )


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated("ended by torchrun (SIGTERM)")
