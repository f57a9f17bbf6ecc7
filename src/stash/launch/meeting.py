"""The nodes of a run talk to the first one: who they are, what to start, that they live, the end.

One small JSON document a line, over TCP. The first node listens on the address that was given and
nowhere else. A line that is too long or no known document closes its connection.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import psutil
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from stash.engine.plan import Plan
from stash.errors import StashError, UsageError
from stash.launch.placement import Placement
from stash.results.document import Count, Model, Name, Text

T = TypeVar("T")

#: More than any document of ours takes; a peer that sends more is none.
MAX_LINE_BYTES = 64 * 1024
BEAT_SECONDS = 1.0
#: Both ends answer at once; what is silent for so long is something else.
HANDSHAKE_SECONDS = 10.0
RETRY_SECONDS = 0.25
#: A node that has been silent for longer than this is told of.
SILENCE_SECONDS = 5 * BEAT_SECONDS
#: Of a value that two nodes do not agree on. Names are bounded already, so that a refusal that
#: quotes two of these is a document still.
QUOTED_LENGTH = 1000


class Hello(Model):
    """A node introduces itself. Fields of other versions are ignored, so that these are told."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    kind: Literal["hello"] = "hello"
    node: Count
    host: Name
    stash: Name
    torch: Name
    asked: dict[Name, Text]  # what must be asked for alike on all nodes


class Welcome(Model):
    """The node takes part."""

    kind: Literal["welcome"] = "welcome"


class Refused(Model):
    """It does not, and why."""

    kind: Literal["refused"] = "refused"
    message: Text


class Start(Model):
    """Start the workers of this launch; they meet at this port of the first node."""

    kind: Literal["start"] = "start"
    plan: Plan
    port: Count


class Done(Model):
    """The workers of one node have ended."""

    kind: Literal["done"] = "done"
    launch: Count
    failure: Text | None
    quoting: Text = ""  # the same with what the workers wrote
    is_echo: bool = False  # it failed only because others had
    interrupted: bool = False


class Beat(Model):
    """Still there."""

    kind: Literal["beat"] = "beat"


class Over(Model):
    """The whole run has ended: where its profile is, or why there is none."""

    kind: Literal["over"] = "over"
    exit_code: Count
    message: Text


Message = Hello | Welcome | Refused | Start | Done | Beat | Over
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


class Channel:
    """One connection: messages in both directions, and how long the other side was silent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._sending = threading.Lock()
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.closed = False
        self._heard = time.monotonic()
        self._longest_silence = 0.0

    @property
    def own_address(self) -> str:
        """The address of this machine on the way to the other."""
        return str(self._connection.getsockname()[0])

    @property
    def peer_address(self) -> str:
        """The other's address."""
        return str(self._connection.getpeername()[0])

    @property
    def silent_seconds(self) -> float:
        """Since the last message."""
        return time.monotonic() - self._heard

    @property
    def longest_silence_seconds(self) -> float:
        """Between any two messages so far."""
        return max(self._longest_silence, self.silent_seconds)

    def send(self, message: Message) -> None:
        """Send a document; a connection that is gone is told by `closed`."""
        try:
            with self._sending:
                self._connection.sendall(message.model_dump_json().encode() + b"\n")
        except OSError:
            self.closed = True

    def receive(self, seconds: float) -> Message | None:
        """The next document within so many seconds; ValueError where it is none."""
        self._connection.settimeout(seconds)
        try:
            return self._read()
        finally:
            self._connection.settimeout(None)

    def keep(self) -> None:
        """From now on, collect messages and tell the other side that we are there."""
        for work in (self._listen, self._beat):
            threading.Thread(target=work, name="stash-meeting", daemon=True).start()

    def close(self) -> None:
        """End the connection."""
        self.closed = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._connection.close()

    def _read(self) -> Message | None:
        line = self._lines.readline(MAX_LINE_BYTES + 1)
        if not line:
            return None
        if len(line) > MAX_LINE_BYTES or not line.endswith(b"\n"):
            raise ValueError("a line without an end")
        return _MESSAGE.validate_json(line)

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError, ValidationError):
            while (message := self._read()) is not None:
                now = time.monotonic()
                self._longest_silence = max(self._longest_silence, now - self._heard)
                self._heard = now
                if not isinstance(message, Beat):
                    self.inbox.put(message)
        self.closed = True

    def _beat(self) -> None:
        while not self.closed:
            self.send(Beat())
            time.sleep(BEAT_SECONDS)


@dataclass(frozen=True)
class Member:
    """Another node, as the first one knows it."""

    node: int
    name: str
    channel: Channel

    def __str__(self) -> str:
        return f"node {self.node} ({self.name})"

    @property
    def title(self) -> str:
        """At the start of a sentence."""
        return f"Node {self.node} ({self.name})"


class Reception:
    """The first node's side: listens, lets nodes in, refuses what does not belong."""

    def __init__(self, place: Placement, own: Hello, timeout_seconds: float) -> None:
        self._place = place
        self._own = own
        self._refusal: str | None = None
        self._members: dict[int, Member] = {}
        self._lock = threading.Lock()
        self._socket = _listening(place, timeout_seconds)
        threading.Thread(target=self._accept, name="stash-reception", daemon=True).start()

    @property
    def members(self) -> list[Member]:
        """The other nodes that are there, in order."""
        with self._lock:
            return [self._members[node] for node in sorted(self._members)]

    def wait_for_all(self, timeout_seconds: float) -> list[Member]:
        """All other nodes; an error names those that do not come, or one that does not fit."""
        end = time.monotonic() + timeout_seconds
        while len(self.members) < self._place.nodes - 1:
            if self._refusal is not None:
                raise StashError(self._refusal)
            gone = next((member for member in self.members if member.channel.closed), None)
            if gone is not None:
                raise StashError(f"Node {gone.node} ({gone.name}) left before all were there.")
            if time.monotonic() > end:
                there = {member.node for member in self.members}
                missing = [str(n) for n in range(1, self._place.nodes) if n not in there]
                raise StashError(
                    f"Node {', '.join(missing)} of {self._place.nodes} did not come to "
                    f"{self._place.host}:{self._place.port} within {timeout_seconds:.0f} s "
                    "(--timeout). Run the same command there with its own --node-rank, and look "
                    f"whether a firewall is in between.{self._only_here()}"
                )
            time.sleep(RETRY_SECONDS / 5)
        return self.members

    def _only_here(self) -> str:
        """Words where the name of this node leads to itself alone, as it does on many systems."""
        host, address = self._place.host, str(self._socket.getsockname()[0])
        if _is_address(host) or not ipaddress.ip_address(address).is_loopback:
            return ""
        return (
            f" On this machine the name {host} means {address}, where no other machine can come: "
            "give an address of it that the others reach to --rdzv-endpoint, on all nodes."
        )

    def host_names(self) -> tuple[str, ...]:
        """One a node; with its address where several have the same name."""
        members = self.members
        names = [self._own.host, *(member.name for member in members)]
        addresses = [self._place.host, *(member.channel.peer_address for member in members)]
        return tuple(
            name if names.count(name) == 1 else f"{name} {address}"
            for name, address in zip(names, addresses, strict=True)
        )

    def tell_all(self, message: Message) -> None:
        """The same to every node."""
        for member in self.members:
            member.channel.send(message)

    def close(self) -> None:
        """Stop listening and end all connections."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # closing alone leaves accept() waiting
        self._socket.close()
        for member in self.members:
            member.channel.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._meet, args=(connection,), daemon=True).start()

    def _meet(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        try:
            hello = channel.receive(HANDSHAKE_SECONDS)
            if not isinstance(hello, Hello):
                raise ValueError("no hello")
        except (OSError, ValueError, ValidationError):
            channel.close()  # somebody knocks at every port; that is no node of ours
            return
        with self._lock:
            refusal = self._objection(hello)
            if refusal is None:
                channel.send(Welcome())
                channel.keep()
                self._members[hello.node] = Member(hello.node, hello.host, channel)
                return
        channel.send(Refused(message=refusal))
        channel.close()

    def _objection(self, hello: Hello) -> str | None:
        """Why a node cannot take part. What no waiting mends ends the whole run, too."""
        who = f"Node {hello.node} ({hello.host})"
        if hello.node in self._members:
            other = self._members[hello.node]
            return (
                f"{who}: node {hello.node} has joined the run at {self._place.host}:"
                f"{self._place.port} already, from {other.channel.peer_address}. Give every node "
                "its own --node-rank, and every run its own port."
            )
        if not 0 < hello.node < self._place.nodes:
            return f"{who}: this run has nodes 0 to {self._place.nodes - 1}."
        mismatch = _mismatch(who, hello, self._own)
        self._refusal = self._refusal or mismatch
        return mismatch


def _mismatch(who: str, hello: Hello, own: Hello) -> str | None:
    for name in ("stash", "torch"):
        theirs, ours = getattr(hello, name), getattr(own, name)
        if theirs != ours:
            return (
                f"{who} has {name} {theirs}, node 0 ({own.host}) has {name} {ours}. "
                "Install the same version on all nodes."
            )
    for option in sorted(own.asked.keys() | hello.asked.keys()):
        theirs, ours = hello.asked.get(option, "nothing"), own.asked.get(option, "nothing")
        if theirs != ours:
            return (
                f"{who} was started with {option} {_quoted(theirs)}, node 0 ({own.host}) with "
                f"{_quoted(ours)}. Run the same command on all nodes; only --node-rank differs."
            )
    return None


def _quoted(value: str) -> str:
    return value if len(value) <= QUOTED_LENGTH else f"{value[:QUOTED_LENGTH]}..."


def join(place: Placement, own: Hello, timeout_seconds: float) -> Channel:
    """Another node's side: a connection to the first one, which has let us in."""
    connection = _connected(place, timeout_seconds)
    channel = Channel(connection)
    channel.send(own)
    try:
        answer = channel.receive(HANDSHAKE_SECONDS)
    except (OSError, ValueError, ValidationError):
        answer = None
    if isinstance(answer, Welcome):
        channel.keep()
        return channel
    channel.close()
    if isinstance(answer, Refused):
        raise StashError(answer.message)
    raise StashError(
        f"Something answers at {place.host}:{place.port} that is no `stash profile` of node 0. "
        "Choose another port for --rdzv-endpoint, the same on all nodes."
    )


def _connected(place: Placement, timeout_seconds: float) -> socket.socket:
    def connect() -> socket.socket:
        return socket.create_connection((place.host, place.port), HANDSHAKE_SECONDS)

    try:
        connection = _patiently(connect, OSError, timeout_seconds)
    except socket.gaierror:
        raise _unknown_host(place, timeout_seconds) from None
    except OSError as error:
        raise StashError(
            f"Node 0 cannot be reached at {place.host}:{place.port} for "
            f"{timeout_seconds:.0f} s (--timeout): {error.strerror or error}. Run the "
            "same command there with --node-rank 0."
        ) from None
    connection.settimeout(None)
    return connection


def _listening(place: Placement, timeout_seconds: float) -> socket.socket:
    """A socket on the one address that was given."""

    def find() -> tuple[socket.AddressFamily, tuple[Any, ...]]:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0]
        return found[0], found[4]

    try:
        family, address = _patiently(find, socket.gaierror, timeout_seconds)
    except socket.gaierror:
        raise _unknown_host(place, timeout_seconds) from None
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        raise _cannot_listen(place, error) from None
    return listening


def _patiently(attempt: Callable[[], T], kind: type[OSError], timeout_seconds: float) -> T:
    """Again and again, until it succeeds or the time is over.

    Other nodes may start later, and the name of a pod is known only seconds after it has started.
    """
    end = time.monotonic() + timeout_seconds
    while True:
        try:
            return attempt()
        except kind:
            if time.monotonic() > end:
                raise
        time.sleep(RETRY_SECONDS)


def _unknown_host(place: Placement, timeout_seconds: float) -> UsageError:
    return UsageError(
        f"--rdzv-endpoint: no host has been found by the name {place.host!r} for "
        f"{timeout_seconds:.0f} s (--timeout). Name node 0 as this machine knows it, or by its "
        "address."
    )


def _cannot_listen(place: Placement, error: OSError) -> StashError:
    where = f"{place.host}:{place.port}"
    if error.errno == errno.EADDRINUSE:
        return StashError(
            f"Something else uses {where}, another run perhaps. Choose another port for "
            "--rdzv-endpoint, the same on all nodes."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return UsageError(
            f"{place.host} is no address of this machine, which is node 0 by its --node-rank. "
            "--rdzv-endpoint names an address of node 0."
        )
    return StashError(f"Cannot listen at {where}: {error.strerror or error}.")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def interface_of(address: str) -> str | None:
    """The network interface that has this address."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in addresses):
            return name
    return None


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for something; whether it came."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(RETRY_SECONDS / 5)
    return True
