"""`stash links` with real workers: inside a machine, across test hosts, and beside a profile."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import links_lab
import pytest

import stash
from launch.running import TINY
from links import links_of
from rooted import NEEDS_ROOT
from stash.cli.main import main
from stash.lab.network import hosts
from stash.launch import links as launch_links
from stash.launch.links import LinksRequest
from stash.results.links import Links
from stash.workloads.generate import cache_folder
from workloads_for_tests.tiny import write_pictures

Captured = pytest.CaptureFixture[str]


@pytest.mark.gang
@pytest.mark.proof
def test_a_profile_with_links_tells_of_exchange_memory_and_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run for all that workers of one machine can probe; short, so nothing is said of rates."""
    short = partial(LinksRequest, rounds=2, max_bytes=1 << 18)
    monkeypatch.setattr(launch_links, "LinksRequest", short)
    profile = stash.profile(
        f"{TINY}:pictures",
        data=write_pictures(tmp_path / "pictures", 32),
        nproc_per_node=2,
        num_workers=1,
        max_rounds=2,
        steps=("node", "warm"),
        links=True,
        out=tmp_path,
    )
    assert stash.load(next(tmp_path.glob("*.json"))) == profile
    links = profile.links
    assert links is not None and links.run.rounds == 2 and links.run.stopped_because == "rounds"
    (node,) = links.all_reduce
    assert (node.where, node.workers) == ("node", 2)
    assert [message.bytes for message in node.messages] == [4 << 10, 16 << 10, 64 << 10, 256 << 10]
    assert all(len(message.samples_seconds) == 2 for message in node.messages)
    assert {one.kind: [count.at_once for count in one.counts] for one in links.shared} == {
        "memory": [1, 2],
        "storage": [1, 2],
    }
    assert not list(cache_folder().glob("links-*"))  # what was made to be read is gone


class TestWithRoot:
    pytestmark = NEEDS_ROOT

    @pytest.mark.gang
    @pytest.mark.proof
    def test_no_exchange_between_hosts_is_faster_than_their_link(self, tmp_path: Path) -> None:
        """Strict bounds are in benchmarks/links_lab.py; here the machine may be busy."""
        with hosts(2, "200mbit") as pair:
            found = links_lab.probe(pair, tmp_path, workers=2, rounds=3, max_bytes=1 << 20)
            link = pair[0].link
        assert (found.machine.nodes, found.machine.workers_per_node) == (2, 2)
        assert len(set(found.machine.hosts)) == 2
        by_set = {one.where: one for one in found.all_reduce}
        assert {where: (one.nodes, one.workers) for where, one in by_set.items()} == {
            "node": (1, 2),
            "between": (2, 2),
            "cluster": (2, 4),
        }
        largest = by_set["between"].messages[-1]
        least = 0.98 * (largest.bytes - 2 * link.burst_bytes) / link.goodput
        assert all(seconds >= least for seconds in largest.samples_seconds)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--device emulated:v100", "has no links"),
        ("--max-bytes 100", "--max-bytes must be 4096 or more"),
        ("--rounds 0", "--rounds must be above 0"),
        ("--data nowhere", "there is no nowhere"),
        ("--nnodes 2", "--rdzv-endpoint"),
    ],
)
def test_what_cannot_be_probed_is_refused_beforehand(
    words: str, message: str, capsys: Captured
) -> None:
    assert main(["links", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_links_that_their_folder_no_longer_takes_are_kept_beside_their_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    out, run_folder = tmp_path / "o\x1b[2Jut", tmp_path / "run"
    run_folder.mkdir()

    def probe(*details: object) -> launch_links.Probe:
        out.rmdir()
        out.touch()  # no folder any more
        return launch_links.Probe(links_of(), run_folder, None)

    monkeypatch.setattr(launch_links, "probe", probe)
    probed = launch_links.measure_links(LinksRequest(device="cpu", storage=False, out=out))
    assert probed.exit_code == 1 and probed.path.parent == run_folder
    assert Links.load(probed.path) == links_of()
    told = capsys.readouterr().err
    assert f"It was kept as {probed.path}" in told
    assert "\x1b" not in told and "o\\x1b[2Jut" in told


def test_a_worker_of_another_launcher_probes_nothing(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0" if name != "WORLD_SIZE" else "2")
    assert main(["links"]) == 2
    assert "once on each node" in capsys.readouterr().err
