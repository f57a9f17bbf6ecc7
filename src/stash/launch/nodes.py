"""The part of each node in a run: the first one leads, the others start workers when it says so.

With one node there is nobody to meet; the same path then runs alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata

from stash import __version__
from stash.engine.plan import Plan
from stash.errors import StashError
from stash.launch.meeting import (
    SILENCE_SECONDS,
    Channel,
    Done,
    Hello,
    Member,
    Over,
    Reception,
    Start,
    interface_of,
    join,
    until,
)
from stash.launch.placement import Placement
from stash.launch.prepare import Prepared
from stash.launch.rendezvous import Point, open_store
from stash.launch.supervise import POLL_SECONDS, STOP_SECONDS, GangFailure
from stash.results.recording import Check

MAX_WORDS = 4000


class Lead:
    """The first node's part: gathers the others, starts launches on all, finds who failed."""

    def __init__(self, place: Placement, reception: Reception | None, timeout: float) -> None:
        self._place = place
        self._reception = reception
        self._timeout = timeout
        self._done: dict[int, Done] = {}
        self.members: list[Member] = []
        self.hosts: tuple[str, ...] = ()

    @classmethod
    def alone(cls) -> Lead:
        """On one machine nobody else has to come."""
        return cls(Placement(), None, STOP_SECONDS)

    def gather(self) -> None:
        """Wait until every node is there."""
        if self._reception is not None:
            self._reception.wait_for_all(self._timeout)
            self.hosts = self._reception.host_names()
            self.members = [
                Member(member.node, self.hosts[member.node], member.channel)
                for member in self._reception.members
            ]

    @contextlib.contextmanager
    def launch(self, plan: Plan) -> Iterator[Point]:
        """A store for the workers of one launch, and the word to all nodes to start theirs."""
        store, port = open_store(self._place.host, self._timeout)
        self._done.clear()
        for member in self.members:
            member.channel.send(Start(plan=plan, port=port))
        # The given host may be a name, which no interface has.
        here = self.members[0].channel.own_address if self.members else None
        interface = None if here is None else interface_of(here)
        try:
            yield Point(self._place.nodes, 0, self._place.host, port, interface)
        finally:
            del store

    def alarm(self) -> GangFailure | None:
        """What has happened elsewhere that ends the launch here, too."""
        for member in self.members:
            done = self._report_of(member)
            if done is not None and done.interrupted:
                raise KeyboardInterrupt
            failure = None if done is None else _failure_of(done)
            if failure is not None and not failure.is_echo:
                return failure.told_with(before=f"On {member}: ")
            if done is None and member.channel.closed:
                return GangFailure(
                    f"{member.title} is gone: its connection closed. Look whether it was "
                    "ended, restarted or preempted."
                )
            if member.channel.silent_seconds > self._timeout:
                return GangFailure(_silent(member))
        return None

    def settle(self, failure: GangFailure | None) -> GangFailure | None:
        """How the launch ended on all nodes: a failure that others caused is told by theirs."""
        if not self.members:
            return failure
        if failure is None:
            until(lambda: all(self._has_ended(member) for member in self.members), STOP_SECONDS)
            return None
        if not failure.is_echo:
            return failure
        cause: list[GangFailure] = []

        def found() -> bool:
            alarm = self.alarm()
            cause.extend([alarm] if alarm else [])
            return bool(cause)

        if until(found, STOP_SECONDS):
            return cause[0]
        quiet = [m for m in self.members if m.channel.silent_seconds > SILENCE_SECONDS]
        return GangFailure(_silent(quiet[0])) if quiet else self._with_other_echoes(failure)

    def _with_other_echoes(self, failure: GangFailure) -> GangFailure:
        """Where no node knows the cause, what each of them says."""
        message, quoting = failure.message, failure.shown
        for member in self.members:
            done = self._report_of(member)
            other = None if done is None else _failure_of(done)
            if other is not None:
                message += f"\nOn {member}: {other.message}"
                quoting += f"\nOn {member}: {other.shown}"
        return GangFailure(message, is_echo=True, quoting=quoting)

    def checks(self) -> tuple[Check, ...]:
        """Whether all nodes were heard from all the time."""
        if not self.members:
            return ()
        worst = max(self.members, key=lambda member: member.channel.longest_silence_seconds)
        seconds = worst.channel.longest_silence_seconds
        if seconds <= SILENCE_SECONDS:
            return (Check(name="contact", status="pass", message="All nodes were heard from."),)
        return (
            Check(
                name="contact",
                status="warn",
                message=f"{worst.title} was not heard from for {seconds:.0f} s.",
                next="Look at its link; blocks of that time are slow, and are in the numbers.",
            ),
        )

    def end(self, exit_code: int, message: str) -> None:
        """Tell all nodes that it is over, and what came of it."""
        if self._reception is not None:
            self._reception.tell_all(Over(exit_code=exit_code, message=message[:MAX_WORDS]))

    def _report_of(self, member: Member) -> Done | None:
        with contextlib.suppress(queue.Empty):
            while True:
                message = member.channel.inbox.get_nowait()
                if isinstance(message, Done):
                    self._done[member.node] = message
        return self._done.get(member.node)

    def _has_ended(self, member: Member) -> bool:
        return member.channel.closed or self._report_of(member) is not None


def _failure_of(done: Done) -> GangFailure | None:
    if done.failure is None:
        return None
    return GangFailure(done.failure, is_echo=done.is_echo, quoting=done.quoting)


def introduce(prepared: Prepared, place: Placement) -> Hello:
    """What a node tells of itself. Arguments of a script may hold secrets: only a digest goes."""
    request, plan = prepared.request, prepared.plan
    arguments = "\0".join(request.script_arguments).encode()
    asked = {
        "WORKLOAD": request.workload,
        "arguments (their digest)": hashlib.sha256(arguments).hexdigest()[:12],
        "--nnodes": place.nodes,
        "--nproc-per-node": prepared.workers,
        "--batch-size": request.batch_size,
        "--num-workers": request.num_workers,
        "--device": plan.device,
        "--instance": plan.instance,
        "--dtype": plan.dtype,
        "--steps": ",".join(plan.steps),
        "--launches": request.launches,
    }
    return Hello(
        node=place.node,
        host=platform.node() or "unknown",
        stash=__version__,
        torch=metadata.version("torch"),
        asked={option: str(value)[:MAX_WORDS] for option, value in asked.items()},
    )


@contextlib.contextmanager
def leading(place: Placement, own: Hello, timeout_seconds: float) -> Iterator[Lead]:
    """Node 0's part in a run; whatever ends it here is told to the other nodes."""
    reception = Reception(place, own, timeout_seconds) if place.nodes > 1 else None
    lead = Lead(place, reception, timeout_seconds)
    try:
        lead.gather()
        yield lead
    except StashError as error:
        lead.end(error.exit_code, error.message)
        raise
    except KeyboardInterrupt:
        lead.end(3, "Interrupted on node 0.")
        raise
    except Exception as error:
        lead.end(1, f"Node 0 failed: {type(error).__name__}. Its terminal tells more.")
        raise
    finally:
        if reception is not None:
            reception.close()


@dataclass(frozen=True)
class Followed:
    """How a run ended, as node 0 told it."""

    exit_code: int
    message: str


def follow(
    place: Placement,
    own: Hello,
    timeout_seconds: float,
    run: Callable[[Plan, Point, Callable[[], GangFailure | None]], GangFailure | None],
) -> Followed:
    """Another node's part: start workers when node 0 says so, until it says that all is over."""
    channel = join(place, own, timeout_seconds)
    follower = _Follower(place, channel, timeout_seconds)
    try:
        while follower.over is None:
            start = follower.next_start()
            if start is None:
                break
            interface = interface_of(channel.own_address)
            point = Point(place.nodes, place.node, place.host, start.port, interface)
            failure = run(start.plan, point, follower.alarm)
            follower.report(start.plan.launch, failure)
    except KeyboardInterrupt:
        channel.send(Done(launch=0, failure=None, interrupted=True))
        until(lambda: follower.heard_end() or channel.closed, STOP_SECONDS)
        raise
    finally:
        over = follower.over
        channel.close()
    return over or Followed(1, follower.lost or "")


class _Follower:
    """What another node knows of the run."""

    def __init__(self, place: Placement, channel: Channel, timeout: float) -> None:
        self._place = place
        self._channel = channel
        self._timeout = timeout
        self._starts: list[Start] = []
        self.over: Followed | None = None
        self.lost: str | None = None

    def next_start(self) -> Start | None:
        """The next launch; none when all is over or node 0 is gone."""
        while not self._starts:
            if self.alarm() is not None:
                return None
            time.sleep(POLL_SECONDS / 5)
        return self._starts.pop(0)

    def report(self, launch: int, failure: GangFailure | None) -> None:
        """Tell node 0 how the workers of this node ended."""
        if failure is None:
            self._channel.send(Done(launch=launch, failure=None))
            return
        self._channel.send(
            Done(
                launch=launch,
                failure=failure.message[:MAX_WORDS],
                quoting=failure.quoting[:MAX_WORDS],
                is_echo=failure.is_echo,
            )
        )

    def heard_end(self) -> bool:
        """Whether node 0 has said that all is over."""
        self._listen()
        return self.over is not None

    def alarm(self) -> GangFailure | None:
        """What ends this node's part: the end of the run, or of node 0."""
        if self.heard_end():
            assert self.over is not None
            return GangFailure(self.over.message, is_echo=True)
        where = f"{self._place.host}:{self._place.port}"
        if self._channel.closed:
            self.lost = f"Node 0 ({where}) is gone: its connection closed."
        elif self._channel.silent_seconds > self._timeout:
            seconds = self._channel.silent_seconds
            self.lost = f"Node 0 ({where}) was not heard from for {seconds:.0f} s (--timeout)."
        return None if self.lost is None else GangFailure(self.lost, is_echo=True)

    def _listen(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._channel.inbox.get_nowait()
                if isinstance(message, Over):
                    self.over = Followed(message.exit_code, message.message)
                elif isinstance(message, Start):
                    self._starts.append(message)


def _silent(member: Member) -> str:
    seconds = member.channel.silent_seconds
    return (
        f"{member.title} was not heard from for {seconds:.0f} s (--timeout is the longest "
        "silence): it hangs, or its link is cut."
    )
