"""Hosts and links that are really there, as slow as they were asked to be, and gone afterwards."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from lab_rates import send

from rooted import NEEDS_ROOT, output_of
from stash.errors import StashError, UsageError
from stash.lab import namespaces, network, registry
from stash.lab.network import Link


def test_goodput_is_the_rate_less_headers() -> None:
    """Worked by hand: 1448 of 1514 bytes are payload, with half an ACK; two ways where shared."""
    assert Link(1e9, mtu=1500).goodput == pytest.approx(125e6 * 1448 / (1514 + 33))
    assert Link(1e9, mtu=1500, shared=True).goodput == pytest.approx(62.5e6 * 1448 / (1514 + 33))


class TestWithRoot:
    pytestmark = NEEDS_ROOT

    def test_bytes_take_their_time_and_are_counted_on_the_wire(self) -> None:
        size = 4_000_000
        with network.hosts(2, "100mbit") as (first, second):
            link = first.link
            seconds = send(first, second, size)
            sent, received = first.sent_bytes(), second.received_bytes()
        # Nothing can be faster than the link, but for what its bucket holds after a pause. How
        # much slower it is depends on the machine, so that is no test's business.
        assert seconds >= 0.98 * (size - link.burst_bytes) / link.goodput
        assert sent == pytest.approx(size * (link.mtu + 14) / (link.mtu - 52), rel=0.05)
        assert received == pytest.approx(sent, rel=0.01)

    def test_a_loopback_is_slow_for_both_directions_together(self) -> None:
        size = 2_000_000
        with network.loopback("100mbit") as host:
            seconds = send(host, host, size)
            assert host.sent_bytes() == host.received_bytes() >= size
        assert seconds >= 0.98 * (size - host.link.burst_bytes) / (100e6 / 8)

    def test_hosts_see_only_each_other(self) -> None:
        with network.hosts(3, "1gbit") as hosts:
            for host in hosts:
                names = re.findall(r"^\d+: (\w+)", output_of(host.inside, "ip", "-o", "link"), re.M)
                assert names == ["lo", "eth0"]
                assert "default" not in output_of(host.inside, "ip", "route")
            assert len({host.address for host in hosts}) == 3

    def test_tcp_fills_a_link_whatever_the_machine_prefers(self) -> None:
        setting = Path("/proc/sys/net/ipv4/tcp_congestion_control")
        before = setting.read_text()
        with network.hosts(2, "1gbit") as hosts, network.loopback("1gbit") as slow:
            for host in (*hosts, slow):
                assert output_of(host.inside, "cat", str(setting)).strip() == "reno"
            assert setting.read_text() == before

    def test_the_machines_own_links_are_not_touched(self) -> None:
        def own() -> str:
            return output_of([], "ip", "-br", "link") + output_of([], "tc", "qdisc", "show")

        before = own()
        with network.hosts(2, "1gbit"), network.loopback("100mbit"):
            assert own() == before
        assert own() == before

    def test_an_error_inside_leaves_nothing(self) -> None:
        with pytest.raises(ZeroDivisionError), network.hosts(1, "1gbit") as (host,):
            assert namespaces.is_held(host.namespace)
            raise ZeroDivisionError
        assert not host.namespace.exists() and not namespaces.is_held(host.namespace)

    def test_a_lab_that_cannot_be_completed_leaves_nothing(self) -> None:
        with pytest.raises(UsageError, match="hosts"), network.hosts(1000, "1gbit"):
            pass
        with pytest.raises(StashError, match="ip could not"), network.hosts(1, "1gbit", mtu=100000):
            pass
        assert not list(registry.ROOT.glob(f"{os.getpid()}-*"))

    def test_a_delay_is_there_or_is_refused_in_words(self) -> None:
        """Not every kernel has netem."""
        try:
            with network.hosts(2, "1gbit", delay="30ms") as (first, second):
                assert send(first, second, 1) >= 0.06
        except StashError as error:
            assert "netem" in error.message

    def test_a_process_that_is_still_inside_is_ended_with_the_lab(self) -> None:
        with network.hosts(1, "1gbit") as (host,):
            inside = subprocess.Popen([*host.inside, "sleep", "600"])
            outside = subprocess.Popen(["sleep", "600"])
        try:
            assert inside.wait(30) != 0
            assert outside.poll() is None
        finally:
            outside.kill()
            outside.wait()


def test_tools_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StashError, match=r"ip, tc, nsenter.*make system"):
        network.require_tools()
