"""Two lab hosts that profile together: what comes out, what is bound, what a lost node leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import lab_cluster
import pytest

from rooted import NEEDS_ROOT, python
from stash.lab.network import Host, hosts
from stash.results.profile import Profile

pytestmark = [pytest.mark.gang, pytest.mark.proof, *NEEDS_ROOT]

#: Little to compute and little to send, so that four workers fit on two cores.
SMALL = ("tinycnn", "--device", "emulated:v100:bytes=0.05:time=20", "--num-workers", 1)
SECRETS = {"AWS_SECRET_ACCESS_KEY": "s3cr3t-of-a-cloud", "WANDB_API_KEY": "k3y-of-a-tracker"}

LISTENING = """
import json, psutil
found = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
print(json.dumps(sorted({c.laddr.ip for c in found})))
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Host, ...]]:
    with hosts(2, "200mbit") as made:
        yield made


@pytest.fixture(scope="module")
def finished(
    pair: tuple[Host, ...], tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[lab_cluster.Node], Profile, set[str]]:
    """One whole run; the addresses on which anything listened while it measured."""
    folder = tmp_path_factory.mktemp("cluster")
    arguments = (*SMALL, "--nproc-per-node", 2, "--max-rounds", 2, "--timeout", 100)
    with lab_cluster.running(pair, folder, arguments, environments=[SECRETS, SECRETS]) as nodes:
        assert lab_cluster.measures(nodes), nodes[0].errors + nodes[1].errors
        bound = json.loads(python(pair[0].inside, LISTENING))
        codes = lab_cluster.wait(nodes, 100)
        assert codes == [0, 0], nodes[0].errors + nodes[1].errors
    profile = nodes[0].profile()
    assert profile is not None
    return nodes, profile, set(bound)


def test_a_profile_of_two_nodes_tells_all_stalls(finished: tuple[object, Profile, object]) -> None:
    _, profile, _ = finished
    assert (profile.machine.nodes, profile.machine.workers_per_node) == (2, 2)
    assert len(profile.machine.hosts) == 2 and len(set(profile.machine.hosts)) == 2
    assert {"network", "links", "relief", "scale-out", "prep", "fetch"} <= set(profile.stalls)
    for name, running in (("node", [0, 1]), ("cluster", [0, 2]), ("scaleout", [0, 1, 2, 3])):
        for block in profile.steps[name].blocks:
            assert [r for r, s in enumerate(block.seconds) if s is not None] == running
    found = {check.name: check.status for check in profile.checks}
    assert found["cluster"] == found["nodes alike"] == found["contact"] == "pass"


def test_the_other_node_tells_where_the_profile_is(
    finished: tuple[list[lab_cluster.Node], Profile, object],
) -> None:
    nodes, profile, _ = finished
    assert profile.id in nodes[1].output and "Profile written on" in nodes[1].output
    assert nodes[1].profile() is None


def test_nothing_listens_on_all_interfaces(
    finished: tuple[object, object, set[str]], pair: tuple[Host, ...]
) -> None:
    _, _, bound = finished
    assert bound <= {pair[0].address, "127.0.0.1"}, bound
    assert pair[0].address in bound


def test_no_secret_of_the_environment_is_in_a_profile(
    finished: tuple[list[lab_cluster.Node], Profile, object],
) -> None:
    _, profile, _ = finished
    text = profile.to_json()
    assert not [secret for secret in SECRETS.values() if secret in text]


def test_a_lost_node_is_named_and_its_rounds_are_kept_and_continued(
    pair: tuple[Host, ...], tmp_path: Path
) -> None:
    steps = ("--nproc-per-node", 1, "--steps", "node,scaleout", "--timeout", 60)
    with lab_cluster.running(pair, tmp_path, (*SMALL, *steps)) as nodes:
        assert lab_cluster.measures(nodes), nodes[0].errors + nodes[1].errors
        lab_cluster.power_off(nodes[1])
        assert lab_cluster.wait(nodes[:1], 60) == [1], nodes[0].errors
    lost = nodes[0].profile()
    assert lost is not None and lost.run.rounds >= 1
    assert "Node 1" in lost.run.message and pair[1].address in lost.run.message
    (path,) = (tmp_path / "node-0" / "profiles").glob("*.json")
    more = ("--resume", path, "--max-rounds", lost.run.rounds + 1)
    with lab_cluster.running(pair, tmp_path, (*SMALL, *steps, *more)) as nodes:
        assert lab_cluster.wait(nodes, 150) == [0, 0], nodes[0].errors + nodes[1].errors
    profile = nodes[0].profile()
    assert profile is not None and profile.run.rounds == lost.run.rounds + 1
    assert profile.steps["node"].blocks[: lost.run.rounds] == lost.steps["node"].blocks
    assert "resumed" in {check.name for check in profile.checks}
