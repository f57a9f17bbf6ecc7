"""One launch on this node: an agent starts its workers; we watch them and learn how they ended."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import psutil

from stash.engine.host import WHERE_SIGNAL
from stash.engine.intermission import Doorkeeper
from stash.engine.plan import RECORDING, Plan
from stash.launch.agent import ENDED, LOGS, Task
from stash.launch.early import run_agent
from stash.launch.rendezvous import Point, variables
from stash.results.recording import AnyEvent, RecordingReader

POLL_SECONDS = 0.25
STOP_SECONDS = 5.0
#: Importing libraries and building a model may take longer than any iteration.
START_SECONDS = 60.0
LAST_LINES = 15
#: A disk with less than this free takes no more rounds, errors and logs.
FULL_BYTES = 1 << 20
#: Where a worker is that waits for others: at a barrier of ours, in the exchange of gradients, or
#: for a device that exchanges them.
WAITING_IN = (
    "/stash/engine/gang.py",
    "/torch/cuda/",
    "/torch/distributed/",
    "/torch/nn/parallel/distributed.py",
    "/torch/autograd/graph.py",
)
#: A line of a stack, as faulthandler writes it.
FRAME = re.compile(r'  File "[^"]+", line \d+ in [\w<>.\\]+')

#: What gloo, NCCL and the store say where the other end of a connection is gone. All else that they
#: complain of is a failure of its own.
ECHOES = (
    "connection closed by",
    "connection was likely closed",
    "connection reset by peer",
    "broken pipe",
    "got 0 bytes",
    "timed out waiting",
    "socket timeout",
    "wait timeout",
    "collective operation timeout",
    "remote process exiting",
    "communicator was aborted",
)

Event = AnyEvent
Listener = Callable[[Iterable[Event]], None]


@dataclass(frozen=True)
class GangFailure:
    """Why a gang did not finish, in words of our own, which go into documents."""

    message: str
    is_echo: bool = False  # it tells what others' failure did here
    #: The same with what workers said and wrote. It may hold secrets: for terminals alone.
    quoting: str = ""

    @property
    def shown(self) -> str:
        """All there is to tell to the user."""
        return self.quoting or self.message

    def told_with(self, before: str = "", after: str = "") -> GangFailure:
        """The same failure with words around it."""
        quoting = f"{before}{self.quoting}{after}" if self.quoting else ""
        return replace(self, message=f"{before}{self.message}{after}", quoting=quoting)


#: Asked again and again: has something happened elsewhere that ends a launch here, too?
Alarm = Callable[[], GangFailure | None]


def run_gang(
    plan: Plan,
    run_folder: Path,
    *,
    workers: int,
    environment: Mapping[str, str],
    script: tuple[str, ...],
    on_events: Listener,
    point: Point,
    alarm: Alarm = lambda: None,
) -> GangFailure | None:
    """Start all workers of this node, pass on what they record, and wait for their end.

    An alarm from elsewhere ends them, too. Leaves no process behind, also when interrupted.
    """
    plan_path = run_folder / "plan.json"
    plan_path.write_text(plan.model_dump_json())
    reader = RecordingReader(run_folder / RECORDING)
    doorkeeper = Doorkeeper(run_folder)
    agent = _start(run_folder, plan_path, workers, environment, script, point)
    try:
        with _end_of(agent) as end:
            failure = _watch(agent, plan, run_folder, reader, on_events, alarm, doorkeeper, end)
    finally:
        with uninterrupted():
            _end(agent)
            doorkeeper.close()
            on_events(list(reader.new_events()))
    return failure


def interrupt_on_terminate() -> Callable[[], None]:
    """A scheduler that ends us politely gets the same as Ctrl-C: complete rounds are kept.

    Once is enough: whoever started us may have been told, too, and have passed it on.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread: the embedding program owns its signals
        return lambda: None
    return lambda: (signal.signal(signal.SIGTERM, before), None)[1]


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A second Ctrl-C or SIGTERM must not cost what the first one is about to save."""
    both = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [signal.signal(number, signal.SIG_IGN) for number in both]
    except ValueError:  # not in the main thread, which alone is interrupted
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(both, before, strict=True):
            signal.signal(number, handler)


def _start(
    run_folder: Path,
    plan_path: Path,
    workers: int,
    environment: Mapping[str, str],
    script: tuple[str, ...],
    point: Point,
) -> subprocess.Popen[bytes]:
    task = Task(
        folder=str(run_folder.absolute()),
        arguments=["--plan", str(plan_path), *script],
        environment={**environment, **_towards(point)},
        workers=[variables(point, workers, number) for number in range(workers)],
        cwd=os.getcwd(),
    )
    return run_agent(task, run_folder / "agent.log")


def _towards(point: Point) -> dict[str, str]:
    """Which interface leads to the other nodes, where nobody has said so."""
    if point.interface is None:
        return {}
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return {name: os.environ.get(name, point.interface) for name in names}


@contextlib.contextmanager
def _end_of(process: subprocess.Popen[bytes]) -> Iterator[int | None]:
    """A descriptor that can be read once a process has ended, on systems that have such."""
    descriptor = None
    with contextlib.suppress(AttributeError, OSError):
        descriptor = os.pidfd_open(process.pid)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _watch(
    agent: subprocess.Popen[bytes],
    plan: Plan,
    run_folder: Path,
    reader: RecordingReader,
    on_events: Listener,
    alarm: Alarm,
    doorkeeper: Doorkeeper,
    end: int | None = None,
) -> GangFailure | None:
    began = time.monotonic()
    last_beat: float | None = None  # kept: a worker may be about to write its file anew
    while True:
        if doorkeeper.wait(POLL_SECONDS, end):
            on_events(list(reader.new_events()))
            doorkeeper.answer()
        else:
            on_events([])  # time has passed
        code = agent.poll()
        if code == 0:
            return None
        if code is not None:
            return _explain_exit(run_folder)
        elsewhere = alarm()
        if elsewhere is not None:
            return elsewhere
        last_beat = _last_beat(_heartbeats(run_folder), last_beat)
        silent = time.monotonic() - (began if last_beat is None else last_beat)
        if silent > plan.timeout_seconds and (last_beat is not None or silent > START_SECONDS):
            return _explain_hang(run_folder, silent)


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
    held_seconds: float  # for which others may keep it from moving on
    doing: str


def _heartbeats(run_folder: Path) -> list[_Heartbeat]:
    beats = []
    for path in run_folder.glob("heartbeat-*"):
        with contextlib.suppress(OSError, ValueError):
            rank = int(path.name.split("-")[1])
            pid, seen, held, doing = path.read_text().strip().split(" ", 3)
            beats.append(_Heartbeat(rank, int(pid), float(seen), float(held), doing))
    return sorted(beats, key=lambda beat: beat.rank)


def _last_beat(beats: list[_Heartbeat], before: float | None) -> float | None:
    """When a worker has last moved on, of those that nobody holds.

    Where all are held, by workers of another node, it is that node's launcher that knows.
    """
    moving = [beat.seen for beat in beats if not beat.held_seconds]
    return max(moving or [beat.seen + beat.held_seconds for beat in beats], default=before)


def _explain_exit(run_folder: Path) -> GangFailure:
    """The first worker that failed, its own words, and its last lines."""
    errors = [_read_error(path) for path in run_folder.glob("error-*.json")]
    told = [error for error in errors if error is not None]
    killed = _killed_worker(run_folder)
    if killed is not None and (not told or killed[1] != signal.SIGTERM):
        rank, number = killed
        words = f"Worker {rank} was ended by signal {number}{_signal_words(number)}."
        return GangFailure(words, quoting=words + _last_lines(run_folder, rank))
    if told:
        # Others fail in turn when the first one's connection closes: theirs is not the cause.
        first = min(told, key=lambda error: (_is_echo(error.quoting), error.rank))
        return GangFailure(
            f"Worker {first.rank} failed: {first.message}.",
            is_echo=_is_echo(first.quoting),
            quoting=f"Worker {first.rank} failed: {first.quoting}."
            + _last_lines(run_folder, first.rank),
        )
    began = any(run_folder.glob("heartbeat-*"))
    words = "A worker ended without a word." if began else "The workers could not be started."
    words += _full_disk_words(run_folder)
    return GangFailure(words, quoting=words + _tail(run_folder / "agent.log"))


def _full_disk_words(run_folder: Path) -> str:
    """A worker that finds no room for its last words cannot say so itself."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(run_folder).free < FULL_BYTES:
            return (
                f" The disk of {run_folder} is full: make room there, or name another folder for "
                "temporary files (TMPDIR)."
            )
    return ""


def _explain_hang(run_folder: Path, silent_seconds: float) -> GangFailure:
    """Ask every worker where it is; the one that does not wait for the others is the cause."""
    beats = _heartbeats(run_folder)
    for beat in beats:
        with contextlib.suppress(OSError):
            os.kill(beat.pid, WHERE_SIGNAL)
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
        words += " They had not begun to train."
        return GangFailure(words, quoting=words + _last_lines(run_folder, 0))
    words += " They wait for each other."
    quoting = words + _last_lines(run_folder, beats[0].rank)
    return GangFailure(words, is_echo=True, quoting=quoting)


def _stack(run_folder: Path, rank: int) -> list[str]:
    """The frames that a worker wrote when it was asked, the innermost first.

    They go into documents. Threads of the script write to the same place, which may be secrets.
    """
    with contextlib.suppress(OSError):
        text = _log_of(run_folder, rank).read_text(errors="replace")
        _, asked, answer = text.rpartition("(most recent call first):\n")
        lines = answer.splitlines() if asked else []
        return list(itertools.takewhile(FRAME.fullmatch, lines))
    return []


@dataclass(frozen=True)
class _Error:
    """How a worker says that it failed: in words of ours, and quoting its script."""

    rank: int
    message: str
    quoting: str


def _read_error(path: Path) -> _Error | None:
    try:
        error = json.loads(path.read_text())
        return _Error(int(error["rank"]), str(error["message"]), str(error["quoting"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_echo(message: str) -> bool:
    """Whether a worker only says that another one is gone."""
    text = message.lower()
    return any(words in text for words in ECHOES)


def _killed_worker(run_folder: Path) -> tuple[int, int] | None:
    """Rank and signal of a worker that did not end by itself, by what its agent has noted.

    SIGTERM is what the agent sends to all others, unless the first one was ended by it.
    """
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        ended = json.loads((run_folder / ENDED).read_text())
        signals = [(int(one["rank"]), -int(one["code"])) for one in ended]
        others = [one for one in signals if one[1] > 0 and one[1] != signal.SIGTERM]
        first = [one for one in signals[:1] if one[1] > 0]
        return next(iter(others + first), None)
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
    """Of a worker of this node; logs are sorted by the number within the node."""
    logs = list((run_folder / LOGS).glob("*/stderr.log"))
    own = [log for log in logs if log.parent.name == str(rank % len(logs))]
    return own[-1] if own else run_folder / "agent.log"


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
