"""Test hosts: network namespaces joined by links of a known rate, and a slow loopback.

All links and addresses live inside the lab's own namespaces; the machine's own network is not
touched. What a link carries follows from its rate by a closed form (`Link.goodput`).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stash.engine.orphans import die_with_parent
from stash.errors import StashError, UsageError
from stash.lab import namespaces, registry, words

MTU = 9000
TCP_IP_HEADERS = 52  # with time stamps
ETHERNET_HEADER = 14
#: How deep the bucket of a link is unless asked otherwise.
BURST_SECONDS = 0.001
#: What may wait in front of a link, so that nothing is dropped.
QUEUE_SECONDS = 2
#: How TCP paces itself there, whatever the machine does: where nothing is dropped, this one never
#: holds back. BBR does, and a message then takes up to a quarter longer than the link needs.
CONGESTION_CONTROL = "reno"
MOST_HOSTS = 200
ADDRESS = "10.83.0.{}"


@dataclass(frozen=True)
class Link:
    """A link of known rate in each direction, or for both together where it is `shared`."""

    bits_per_second: float
    mtu: int = MTU
    delay_seconds: float = 0.0
    shared: bool = False
    #: So much passes at once after a pause; the link forgives timers that are late by as much.
    depth_seconds: float = BURST_SECONDS

    @property
    def goodput(self) -> float:
        """Payload bytes per second of TCP in each direction, while both directions are in use.

        The other direction's acknowledgements, one for two segments, pass the same bucket; on a
        shared link the other direction's data do, too.
        """
        acknowledgement = (TCP_IP_HEADERS + ETHERNET_HEADER) / 2
        wire = self.mtu + ETHERNET_HEADER + acknowledgement
        directions = 2 if self.shared else 1
        return self.bits_per_second / 8 / directions * (self.mtu - TCP_IP_HEADERS) / wire

    @property
    def burst_bytes(self) -> int:
        """What passes at once after a pause."""
        return max(
            2 * (self.mtu + ETHERNET_HEADER), round(self.bits_per_second / 8 * self.depth_seconds)
        )

    @property
    def burst_seconds(self) -> float:
        """For how long it must be idle until so much passes at once."""
        return 8 * self.burst_bytes / self.bits_per_second

    def shaping(self, device: str) -> list[str]:
        """Lines for `tc` that give a device this rate, and delay where there is one."""
        rate = f"rate {round(self.bits_per_second)}bit burst {self.burst_bytes}"
        lines = [f"qdisc add dev {device} root handle 1: tbf {rate} latency {QUEUE_SECONDS}s"]
        if self.delay_seconds:
            delay = f"netem delay {round(1e6 * self.delay_seconds)}us limit 100000"
            lines.append(f"qdisc add dev {device} parent 1:1 handle 2: {delay}")
        return lines


@dataclass(frozen=True)
class Host:
    """A test host: a namespace with an address of its own behind a link."""

    name: str
    address: str
    interface: str
    link: Link
    namespace: Path
    #: The other end of the link: namespace and interface. A loopback has none.
    port: tuple[Path, str] | None = None

    @property
    def inside(self) -> list[str]:
        """In front of a command, these run it on this host."""
        return namespaces.words_to_enter(self.namespace)

    @property
    def environment(self) -> dict[str, str]:
        """Tells gloo and NCCL which link to use."""
        return {"GLOO_SOCKET_IFNAME": self.interface, "NCCL_SOCKET_IFNAME": self.interface}

    def sent_bytes(self) -> int:
        """Bytes that have left over the link, headers included, as its bucket counted them."""
        return _counted_bytes(self.namespace, self.interface)

    def received_bytes(self) -> int:
        """Bytes that have come in over the link; on a loopback these are the ones sent."""
        return _counted_bytes(*self.port) if self.port else self.sent_bytes()


@contextlib.contextmanager
def hosts(
    count: int, rate: str, *, mtu: int = MTU, delay: str | None = None, burst: str | None = None
) -> Iterator[tuple[Host, ...]]:
    """Test hosts `h0`, `h1`, ... around one switch, each behind a link of this rate."""
    link = _link(rate, mtu, delay, burst)
    with registry.opened() as lab:
        yield build_hosts(lab, count, link)


@contextlib.contextmanager
def loopback(
    rate: str, *, mtu: int = MTU, delay: str | None = None, burst: str | None = None
) -> Iterator[Host]:
    """One host whose loopback has this rate: a slow link between the workers of a machine."""
    link = _link(rate, mtu, delay, burst, shared=True)
    with registry.opened() as lab:
        yield _build_loopback(lab, link)


def build_hosts(lab: registry.Lab, count: int, link: Link) -> tuple[Host, ...]:
    """The hosts of a lab that is written down already."""
    require_tools()
    if not 1 <= count <= MOST_HOSTS:
        raise UsageError(f"A lab has 1 to {MOST_HOSTS} hosts, not {count}.")
    made = hosts_of(lab, count, link)
    switch = lab.namespace("switch")
    _namespace(switch)
    _tool(switch, "ip", ["link add switch type bridge mcast_snooping 0", "link set switch up"])
    for host in made:
        _namespace(host.namespace)
        _join(host, switch)
    return made


def hosts_of(lab: registry.Lab, count: int, link: Link) -> tuple[Host, ...]:
    """The hosts that a lab has, or will have: all of it follows from their number."""
    switch = lab.namespace("switch")
    return tuple(
        Host(
            name=f"h{number}",
            address=ADDRESS.format(number + 1),
            interface="eth0",
            link=link,
            namespace=lab.namespace(f"h{number}"),
            port=(switch, f"h{number}"),
        )
        for number in range(count)
    )


def require_tools() -> None:
    """The programs of iproute2 and util-linux."""
    missing = [tool for tool in ("ip", "tc", "nsenter") if shutil.which(tool) is None]
    if missing:
        raise StashError(
            f"The lab needs {', '.join(missing)}: as root, `make system` installs iproute2 "
            "(or: apt-get install iproute2 util-linux)."
        )


def _link(
    rate: str, mtu: int, delay: str | None, burst: str | None, *, shared: bool = False
) -> Link:
    return Link(
        bits_per_second=words.bits_per_second(rate),
        mtu=mtu,
        delay_seconds=words.seconds(delay) if delay else 0.0,
        shared=shared,
        depth_seconds=words.seconds(burst) if burst else BURST_SECONDS,
    )


def _build_loopback(lab: registry.Lab, link: Link) -> Host:
    require_tools()
    host = Host("h0", "127.0.0.1", "lo", link, lab.namespace("h0"))
    _namespace(host.namespace)
    _tool(host.namespace, "ip", [f"link set lo mtu {link.mtu}"])
    _tool(host.namespace, "tc", link.shaping("lo"))
    return host


def _namespace(path: Path) -> None:
    """A namespace with a loopback, TCP that fills its link, and nobody else's packets."""
    namespaces.create(path)
    namespaces.inside(path, _settle)
    _tool(path, "ip", ["link set lo up"])


def _settle() -> None:
    """TCP as the closed form has it; no IPv6, whose chatter would count as traffic."""
    settings = {
        "ipv4/tcp_congestion_control": CONGESTION_CONTROL,
        "ipv6/conf/all/disable_ipv6": "1",
        "ipv6/conf/default/disable_ipv6": "1",
    }
    for name, value in settings.items():
        with contextlib.suppress(OSError):  # a kernel without it, or a container that may not
            Path("/proc/sys/net", name).write_text(value)


def _join(host: Host, switch: Path) -> None:
    link, mtu = host.link, host.link.mtu
    pair = f"link add {host.name} mtu {mtu} type veth"
    pair += f" peer name {host.interface} mtu {mtu} netns {host.namespace}"
    _tool(switch, "ip", [pair, f"link set {host.name} master switch up"])
    _tool(switch, "tc", link.shaping(host.name))
    address = f"addr add {host.address}/24 dev {host.interface}"
    _tool(host.namespace, "ip", [address, f"link set {host.interface} up"])
    _tool(host.namespace, "tc", link.shaping(host.interface))


def _tool(namespace: Path, tool: str, lines: list[str]) -> None:
    """Have `ip` or `tc` do some things inside a namespace; it ends with us, however we end."""
    done = namespaces.inside(
        namespace,
        lambda: subprocess.run(
            [tool, "-batch", "-"],
            input="\n".join(lines),
            text=True,
            capture_output=True,
            preexec_fn=die_with_parent,
        ),
    )
    if done.returncode == 0:
        return
    if any("netem" in line for line in lines) and "unknown" in done.stderr:
        raise StashError(
            "This kernel has no netem, so a link cannot be given a delay: leave the delay out, or "
            "delay the exchange itself (`stash.lab.delays.slow_exchange`)."
        )
    raise StashError(f"{tool} could not do {lines}: {done.stderr.strip()}.")


def _counted_bytes(namespace: Path, interface: str) -> int:
    command = ["tc", "-s", "-j", "qdisc", "show", "dev", interface, "root"]
    done = namespaces.inside(
        namespace, lambda: subprocess.run(command, capture_output=True, check=True)
    )
    return int(json.loads(done.stdout)[0]["bytes"])
