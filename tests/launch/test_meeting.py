"""Nodes that meet: who is let in, what is refused and in which words, what a stranger can do."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stash.engine.plan import Plan
from stash.errors import StashError, UsageError
from stash.launch import meeting
from stash.launch.meeting import Done, Hello, Reception, Start, join
from stash.launch.nodes import Lead, follow, introduce, leading
from stash.launch.placement import Placement
from stash.launch.prepare import prepare
from stash.launch.request import Request
from stash.launch.supervise import GangFailure

ASKED = {"--nproc-per-node": "2"}


def hello(node: int, **changes: Any) -> Hello:
    told = {"host": f"host-{node}", "stash": "1.0", "torch": "2.13", "asked": ASKED}
    return Hello(node=node, **{**told, **changes})


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def place(node: int, port: int, nodes: int = 2) -> Placement:
    return Placement(nodes, node, "127.0.0.1", port)


@contextmanager
def reception(nodes: int = 2) -> Iterator[tuple[Reception, int]]:
    port = free_port()
    made = Reception(place(0, port, nodes), hello(0), 5)
    try:
        yield made, port
    finally:
        made.close()


def test_nodes_that_are_alike_are_let_in() -> None:
    with reception(nodes=3) as (made, port):
        channels = [join(place(node, port, 3), hello(node), 5) for node in (2, 1)]
        members = made.wait_for_all(5)
        assert [str(member) for member in members] == ["node 1 (host-1)", "node 2 (host-2)"]
        for channel in channels:
            channel.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"torch": "2.6"}, r"Node 1 \(host-1\) has torch 2.6, node 0 \(host-0\) has torch 2.13"),
        ({"stash": "0.9"}, r"Node 1 \(host-1\) has stash 0.9, node 0 \(host-0\) has stash 1.0"),
        ({"asked": {"--nproc-per-node": "4"}}, r"started with --nproc-per-node 4, .* with 2"),
        ({"asked": {}}, r"started with --nproc-per-node nothing"),
    ],
)
def test_a_node_that_is_not_alike_is_refused_on_both_sides(
    changes: dict[str, Any], words: str
) -> None:
    with reception() as (made, port):
        with pytest.raises(StashError, match=words):
            join(place(1, port), hello(1, **changes), 5)
        with pytest.raises(StashError, match=words):
            made.wait_for_all(5)


def test_values_that_are_as_long_as_can_be_are_refused_in_words_of_their_own() -> None:
    name, longest = "x" * 512, "y" * 4000
    theirs = {"host": name, "asked": {**ASKED, name: longest}}
    with reception() as (made, port):
        with pytest.raises(StashError, match=r"was started with x+ y+\.\.\., node 0"):
            join(place(1, port), hello(1, **theirs), 5)
        with pytest.raises(StashError, match="was started with"):
            made.wait_for_all(5)


def test_a_refusal_is_not_forgotten_when_the_next_node_is_alike() -> None:
    with reception(nodes=3) as (made, port):
        with pytest.raises(StashError, match="has torch"):
            join(place(1, port, 3), hello(1, torch="2.6"), 5)
        channel = join(place(2, port, 3), hello(2), 5)
        with pytest.raises(StashError, match=r"Node 1 \(host-1\) has torch 2.6"):
            made.wait_for_all(0.5)
        channel.close()


def test_a_port_is_free_again_after_a_meeting() -> None:
    with reception() as (_, port):
        pass
    again = Reception(place(0, port), hello(0), 5)
    again.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1.0)


def test_a_node_that_is_there_already_is_refused_and_the_run_goes_on() -> None:
    with reception() as (made, port):
        first = join(place(1, port), hello(1), 5)
        with pytest.raises(StashError, match=r"node 1 has joined the run at 127.0.0.1:.* already"):
            join(place(1, port), hello(1), 5)
        assert len(made.wait_for_all(5)) == 1
        first.close()


def test_nodes_that_do_not_come_are_named() -> None:
    with reception(nodes=4) as (made, port):
        channel = join(place(2, port, 4), hello(2), 5)
        with pytest.raises(StashError, match=r"Node 1, 3 of 4 did not come to 127.0.0.1"):
            made.wait_for_all(0.3)
        channel.close()


def test_a_name_that_leads_to_this_machine_alone_is_told_when_nobody_comes() -> None:
    named = replace(place(0, free_port()), host="localhost")
    made = Reception(named, hello(0), 5)
    words = r"the name localhost means (127\.0\.0\.1|::1), .*give an address of it"
    with pytest.raises(StashError, match=words):
        made.wait_for_all(0.1)
    made.close()
    with reception() as (made, _), pytest.raises(StashError) as told:
        made.wait_for_all(0.1)
    assert "means" not in str(told.value)  # an address was given, and is known to be one


def test_a_port_that_is_taken_is_told_by_node_0() -> None:
    with reception() as (_, port), pytest.raises(StashError, match="Something else uses"):
        Reception(place(0, port), hello(0), 5)


def test_an_address_of_another_machine_is_told_by_node_0() -> None:
    with pytest.raises(UsageError, match="is no address of this machine"):
        Reception(Placement(2, 0, "192.0.2.1", 29400), hello(0), 5)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 200_000, b""])
def test_something_else_that_answers_is_told_by_other_nodes(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(10)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(StashError, match=r"Something answers at .* no `stash profile`"):
            join(place(1, server.getsockname()[1]), hello(1), 5)


def test_node_0_that_is_not_there_is_told_after_the_timeout() -> None:
    with pytest.raises(StashError, match=r"Node 0 cannot be reached at 127.0.0.1:.*--node-rank 0"):
        join(place(1, free_port()), hello(1), 0.3)


class LateNames:
    """Stands for a resolver that knows a name only from the third question on."""

    def __init__(self) -> None:
        self.asked = 0
        self._resolve = socket.getaddrinfo

    def __call__(self, host: str, *details: Any, **more: Any) -> Any:
        self.asked += 1
        if self.asked < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self._resolve("127.0.0.1" if host == "node-0.job" else host, *details, **more)


def test_nodes_wait_for_a_name_that_is_known_only_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "RETRY_SECONDS", 0.01)
    named = Placement(2, 0, "node-0.job", free_port())
    for_node_0, for_node_1 = LateNames(), LateNames()
    monkeypatch.setattr(socket, "getaddrinfo", for_node_0)
    made = Reception(named, hello(0), 5)
    monkeypatch.setattr(socket, "getaddrinfo", for_node_1)
    channel = join(replace(named, node=1), hello(1), 5)
    assert len(made.wait_for_all(5)) == 1
    assert (for_node_0.asked, for_node_1.asked) == (3, 3)
    channel.close()
    made.close()


def test_a_name_that_nobody_knows_is_told_after_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*details: Any, **more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    words = r"no host has been found by the name 'nowhere' for 0 s \(--timeout\)"
    with pytest.raises(UsageError, match=words):
        Reception(Placement(2, 0, "nowhere", 29400), hello(0), 0.1)
    with pytest.raises(UsageError, match=words):
        join(Placement(2, 1, "nowhere", 29400), hello(1), 0.1)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"kind":"start","plan":{},"port":1}\n',
        b"[" * 70_000 + b"\n",
        b'{"kind":"hello","node":1,"host":"' + b"x" * 5000 + b'"}\n',
        b"\x80\x04\x95 a pickle\n",
    ],
)
def test_a_stranger_is_sent_away_and_the_nodes_still_meet(sent: bytes) -> None:
    with reception() as (made, port):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(sent)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(5)
            assert stranger.recv(10) == b""
        channel = join(place(1, port), hello(1), 5)
        assert len(made.wait_for_all(5)) == 1
        channel.close()


def test_a_line_that_has_no_end_closes_the_connection() -> None:
    with reception() as (made, port):
        channel = join(place(1, port), hello(1), 5)
        (member,) = made.wait_for_all(5)
        channel._connection.sendall(b"x" * (meeting.MAX_LINE_BYTES + 10))
        assert meeting.until(lambda: member.channel.closed, 5)


def run_follower(port: int, gang: Any) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def work() -> None:
        found.append(follow(place(1, port), hello(1), 5, gang))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, found


def test_the_others_start_when_node_0_says_so_and_hear_how_it_ended() -> None:
    port, seen = free_port(), list[tuple[int, int]]()

    def gang(plan: Plan, point: Any, alarm: Any) -> None:
        seen.append((plan.launch, point.node))

    thread, found = run_follower(port, gang)
    with leading(place(0, port), hello(0), 5) as lead:
        for launch in range(2):
            with lead.launch(Plan(steps=("node",), workload="x", launch=launch)):
                assert lead.settle(None) is None
        lead.end(0, "Profile written on host-0: /p.json")
        thread.join(5)
    assert seen == [(0, 1), (1, 1)]
    assert (found[0].exit_code, found[0].message) == (0, "Profile written on host-0: /p.json")


def test_whatever_breaks_node_0_ends_the_others_at_once() -> None:
    port = free_port()
    thread, found = run_follower(port, lambda plan, point, alarm: None)
    with pytest.raises(OSError, match="disk"), leading(place(0, port), hello(0), 5):
        raise OSError("disk full at /home/me")
    thread.join(5)
    assert (found[0].exit_code, found[0].message.split(".")[0]) == (1, "Node 0 failed: OSError")


def test_a_failure_that_others_caused_is_told_by_theirs() -> None:
    port = free_port()

    def gang(plan: Plan, point: Any, alarm: Any) -> GangFailure:
        return GangFailure("Worker 3 was ended by signal 9.")

    thread, _ = run_follower(port, gang)
    with leading(place(0, port), hello(0), 5) as lead:
        with lead.launch(Plan(steps=("node",), workload="x")):
            failure = lead.settle(GangFailure("connection closed by peer", is_echo=True))
        lead.end(1, "failed")
        thread.join(5)
    assert failure is not None
    assert failure.message == "On node 1 (host-1): Worker 3 was ended by signal 9."


def test_what_workers_elsewhere_said_is_shown_and_goes_into_no_document() -> None:
    port = free_port()

    def gang(plan: Plan, point: Any, alarm: Any) -> GangFailure:
        return GangFailure(
            "Worker 3 failed: KeyError.", quoting="Worker 3 failed: KeyError: s3cr3t."
        )

    thread, _ = run_follower(port, gang)
    with leading(place(0, port), hello(0), 5) as lead:
        with lead.launch(Plan(steps=("node",), workload="x")):
            failure = lead.settle(GangFailure("connection closed by peer", is_echo=True))
        lead.end(1, "failed")
        thread.join(5)
    assert failure is not None
    assert failure.message == "On node 1 (host-1): Worker 3 failed: KeyError."
    assert failure.shown == "On node 1 (host-1): Worker 3 failed: KeyError: s3cr3t."


def test_where_all_nodes_only_saw_a_connection_close_each_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stash.launch.nodes.STOP_SECONDS", 0.5)
    port = free_port()

    def gang(plan: Plan, point: Any, alarm: Any) -> GangFailure:
        return GangFailure("Worker 1 failed: broken pipe.", is_echo=True)

    thread, _ = run_follower(port, gang)
    with leading(place(0, port), hello(0), 5) as lead:
        with lead.launch(Plan(steps=("node",), workload="x")):
            failure = lead.settle(GangFailure("Worker 0 failed: connection reset.", is_echo=True))
        lead.end(1, "failed")
        thread.join(5)
    assert failure is not None
    assert failure.message.splitlines() == [
        "Worker 0 failed: connection reset.",
        "On node 1 (host-1): Worker 1 failed: broken pipe.",
    ]


def test_a_node_that_leaves_raises_the_alarm_and_one_that_is_interrupted_ends_the_run() -> None:
    port = free_port()
    threads = []

    def hold(channels: list[Any]) -> None:
        channels.append(join(place(1, port), hello(1), 5))

    channels: list[Any] = []
    threads.append(threading.Thread(target=hold, args=(channels,)))
    threads[0].start()
    with leading(place(0, port), hello(0), 5) as lead:
        threads[0].join()
        assert lead.alarm() is None
        channels[0].send(Done(launch=0, failure=None, interrupted=True))
        with pytest.raises(KeyboardInterrupt):
            meeting.until(lambda: lead.alarm() is not None, 5)
        lead._done.clear()
        channels[0].close()
        assert meeting.until(lambda: lead.alarm() is not None, 5)
        alarm = lead.alarm()
        assert alarm is not None and "Node 1 (host-1) is gone" in alarm.message


def test_a_silent_node_is_named_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "BEAT_SECONDS", 60.0)
    with reception() as (made, port):
        channel = join(place(1, port), hello(1), 5)
        made.wait_for_all(5)
        lead = Lead(place(0, port), made, 0.2)
        lead.gather()
        assert meeting.until(lambda: lead.alarm() is not None, 5)
        alarm = lead.alarm()
        assert alarm is not None and "Node 1 (host-1) was not heard from" in alarm.message
        channel.close()


def test_a_start_message_is_schema_checked() -> None:
    text = Start(plan=Plan(steps=("node",), workload="x"), port=1).model_dump_json()
    document = json.loads(text)
    document["plan"]["steps"] = "node"
    with pytest.raises(ValueError, match="steps"):
        meeting._MESSAGE.validate_json(json.dumps(document))


def test_arguments_of_a_script_go_to_no_other_node_and_into_no_plan(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    asked = Request(
        workload=str(script), script_arguments=("--token", "s3cr3t"), device="cpu", nproc_per_node=2
    )
    prepared = prepare(asked, nodes=2)
    told = introduce(prepared, place(1, 1))
    assert "s3cr3t" not in told.model_dump_json() + prepared.plan.model_dump_json()
    others = replace(asked, script_arguments=("--token", "other"))
    assert introduce(prepare(others, nodes=2), place(1, 1)).asked != told.asked
