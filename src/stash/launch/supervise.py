"""One launch on this machine: torchrun starts the gang; we watch it and learn how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from stash.engine.host import die_with_parent
from stash.engine.plan import RECORDING, Plan
from stash.results.recording import AnyEvent, RecordingReader

POLL_SECONDS = 0.25
STOP_SECONDS = 5.0
#: Importing libraries and building a model may take longer than any iteration.
START_SECONDS = 60.0
LAST_LINES = 15
#: Where a worker is that waits for others: at a barrier of ours, or in the exchange of gradients.
WAITING_IN = (
    "/torch/distributed/",
    "/torch/nn/parallel/distributed.py",
    "/torch/autograd/graph.py",
)

Event = AnyEvent


@dataclass(frozen=True)
class GangFailure:
    """Why a gang did not finish, in words for the user."""

    message: str


def run_gang(
    plan: Plan,
    run_folder: Path,
    *,
    workers: int,
    threads: int | None,
    script: tuple[str, ...],
    on_events: Callable[[Iterable[Event]], None],
) -> GangFailure | None:
    """Start all workers, pass on what they record, and wait for their end.

    Leaves no process behind, also when interrupted.
    """
    plan_path = run_folder / "plan.json"
    plan_path.write_text(plan.model_dump_json())
    reader = RecordingReader(run_folder / RECORDING)
    agent = _start(run_folder, plan_path, workers, threads, script)
    try:
        failure = _watch(agent, plan, run_folder, reader, on_events)
    finally:
        with uninterrupted():
            _end(agent)
            on_events(list(reader.new_events()))
    return failure


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not cost what the first one is about to save."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not in the main thread, which alone is interrupted
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start(
    run_folder: Path, plan_path: Path, workers: int, threads: int | None, script: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += ["--standalone", "--nproc-per-node", str(workers)]
    command += ["--log-dir", str(run_folder / "logs"), "--redirects", "3"]
    command += ["-m", "stash.engine.host", "--plan", str(plan_path), *script]
    environment = dict(os.environ)
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with (run_folder / "agent.log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if os.isatty(0) else None,  # ours is another session
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C comes to us first; we end the gang in order
            preexec_fn=die_with_parent,
        )


def _watch(
    agent: subprocess.Popen[bytes],
    plan: Plan,
    run_folder: Path,
    reader: RecordingReader,
    on_events: Callable[[Iterable[Event]], None],
) -> GangFailure | None:
    began = time.time()
    while True:
        code = agent.poll()
        on_events(list(reader.new_events()))
        if code == 0:
            return None
        if code is not None:
            return _explain_exit(run_folder)
        beats = [beat.seen for beat in _heartbeats(run_folder)]
        silent = time.time() - max([began, *beats])
        if silent > plan.timeout_seconds and (beats or silent > START_SECONDS):
            return _explain_hang(run_folder, silent)
        time.sleep(POLL_SECONDS)


def _end(agent: subprocess.Popen[bytes]) -> None:
    """Ask the agent to end its workers, then make sure that every descendant is gone."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        family = psutil.Process(agent.pid).children(recursive=True)
    if agent.poll() is None:
        agent.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(STOP_SECONDS)
    for process in family:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(family, timeout=STOP_SECONDS)
    if agent.poll() is None:
        agent.kill()
        agent.wait()


@dataclass(frozen=True)
class _Heartbeat:
    rank: int
    pid: int
    seen: float
    doing: str


def _heartbeats(run_folder: Path) -> list[_Heartbeat]:
    beats = []
    for path in run_folder.glob("heartbeat-*"):
        with contextlib.suppress(OSError, ValueError):
            pid, seen, doing = path.read_text().split(" ", 2)
            beats.append(_Heartbeat(int(path.name.split("-")[1]), int(pid), float(seen), doing))
    return sorted(beats, key=lambda beat: beat.rank)


def _explain_exit(run_folder: Path) -> GangFailure:
    """The first worker that failed, its own words, and its last lines."""
    errors = [_read_error(path) for path in run_folder.glob("error-*.json")]
    told = [error for error in errors if error is not None]
    killed = _killed_worker(run_folder)
    if killed is not None and (not told or killed[1] != signal.SIGTERM):
        rank, number = killed
        return GangFailure(
            f"Worker {rank} was ended by signal {number}{_signal_words(number)}."
            + _last_lines(run_folder, rank)
        )
    if told:
        # Others fail in turn when the first one's connection closes: theirs is not the cause.
        rank, message = min(told, key=lambda error: (_is_echo(error[1]), error[0]))
        return GangFailure(f"Worker {rank} failed: {message}." + _last_lines(run_folder, rank))
    return GangFailure("The workers could not be started." + _tail(run_folder / "agent.log"))


def _explain_hang(run_folder: Path, silent_seconds: float) -> GangFailure:
    """Ask every worker where it is; the one that does not wait for the others is the cause."""
    beats = _heartbeats(run_folder)
    for beat in beats:
        with contextlib.suppress(OSError):
            os.kill(beat.pid, signal.SIGUSR1)
    time.sleep(0.5)
    words = f"No worker has moved on for {silent_seconds:.0f} s (--timeout)."
    for beat in beats:
        stack = _stack(run_folder, beat.rank)
        if stack and not any(place in stack[0] for place in WAITING_IN):
            return GangFailure(
                f"{words} Worker {beat.rank} hangs in `{beat.doing}`, the others wait for it."
                + _quoted("It is here, innermost first:", stack[:LAST_LINES])
            )
    if not beats:
        return GangFailure(f"{words} They had not begun to train." + _last_lines(run_folder, 0))
    return GangFailure(f"{words} They wait for each other." + _last_lines(run_folder, 0))


def _stack(run_folder: Path, rank: int) -> list[str]:
    """The frames that a worker wrote when it was asked, the innermost first."""
    with contextlib.suppress(OSError):
        text = _log_of(run_folder, rank).read_text(errors="replace")
        _, asked, answer = text.rpartition("(most recent call first):\n")
        return answer.splitlines() if asked else []
    return []


def _read_error(path: Path) -> tuple[int, str] | None:
    try:
        error = json.loads(path.read_text())
        return int(error["rank"]), str(error["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_echo(message: str) -> bool:
    text = message.lower()
    return "connection closed by peer" in text or "gloo" in text or "nccl" in text


def _killed_worker(run_folder: Path) -> tuple[int, int] | None:
    """Rank and signal of a worker that did not end by itself, from torchrun's own summary.

    That names the first failure last; SIGTERM is what torchrun then sends to all others.
    """
    with contextlib.suppress(OSError):
        text = (run_folder / "agent.log").read_text(errors="replace")
        ended = re.findall(r"rank\s*:\s*(\d+) .*\n\s*exitcode\s*:\s*-(\d+)", text)
        workers = [(int(rank), int(number)) for rank, number in ended]
        workers.sort(key=lambda worker: worker[1] != signal.SIGTERM)
        return workers[-1] if workers else None
    return None


def _signal_words(number: int) -> str:
    if number == signal.SIGKILL:
        return (
            " (SIGKILL), most likely because the machine ran out of memory: "
            "use a smaller --batch-size or fewer workers"
        )
    with contextlib.suppress(ValueError):
        return f" ({signal.Signals(number).name})"
    return ""


def _log_of(run_folder: Path, rank: int) -> Path:
    logs = sorted((run_folder / "logs").glob(f"*/attempt_0/{rank}/stderr.log"))
    return logs[-1] if logs else run_folder / "agent.log"


def _last_lines(run_folder: Path, rank: int) -> str:
    """What it wrote last, to standard error and, where it spoke there, to standard output."""
    log = _log_of(run_folder, rank)
    said = log.with_name("stdout.log")
    return _tail(log) + (_tail(said, "Its last output:") if said.exists() else "")


def _tail(path: Path, title: str = "Its last lines:") -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()[-LAST_LINES:]
    except OSError:
        return ""
    return _quoted(title, lines)


def _quoted(title: str, lines: list[str]) -> str:
    return f"\n{title}\n" + "\n".join("  " + line for line in lines) if lines else ""
