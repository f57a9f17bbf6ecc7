"""Rings are counted on the graph: hand-worked ones, and the cube mesh that the paper rents."""

import pytest

from stash.errors import UsageError
from stash.hardware import topologies


@pytest.mark.parametrize(
    ("gpus", "links", "rings"),
    [
        (3, ((0, 1, 1), (1, 2, 1), (0, 2, 1)), 1),
        (4, ((0, 1, 1), (1, 2, 1), (2, 3, 1), (0, 3, 1)), 1),
        (4, ((0, 1, 2), (1, 2, 2), (2, 3, 2), (0, 3, 2)), 2),
        (4, ((0, 1, 2), (2, 3, 2)), 0),  # two bridged pairs
        (4, ((0, 1, 3), (1, 2, 1), (2, 3, 3), (0, 3, 1)), 1),  # its thinnest link decides
        (5, tuple((a, b, 1) for a in range(5) for b in range(a)), 2),  # complete graph of five
    ],
)
def test_rings_on_small_graphs(gpus: int, links: tuple[topologies.Link, ...], rings: int) -> None:
    assert topologies.rings(gpus, links) == rings


def test_the_cube_mesh_has_three_rings_and_its_quad_two() -> None:
    assert topologies.find("aws-p3.16xlarge").rings == 3
    assert topologies.find("aws-p3.8xlarge").rings == 2
    assert topologies.find("aws-p3.16xlarge").nvlink_ring_bytes_per_second == 120e9


def test_most_slices_of_four_gpus_have_no_ring_at_all() -> None:
    kinds = topologies.find("aws-p3.16xlarge").slices(4)
    assert {one.rings: count for one, count in kinds.items()} == {0: 62, 1: 6, 2: 2}
    assert sum(kinds.values()) == 70


def test_a_switch_gives_every_gpu_all_its_links() -> None:
    assert topologies.find("aws-p4d.24xlarge").nvlink_ring_bytes_per_second == 12 * 20e9


def test_bridged_pairs_make_no_ring_of_four() -> None:
    assert topologies.find("azure-nc48ads-a100-v4").nvlink_ring_bytes_per_second == 240e9
    assert topologies.find("azure-nc96ads-a100-v4").nvlink_ring_bytes_per_second is None


def test_every_topology_names_its_sources_and_links_only_gpus_it_has() -> None:
    for name in topologies.names():
        one = topologies.find(name)
        assert one.sources, name
        assert one.confidence in ("low", "medium", "high")
        assert all(0 <= a < b < one.gpus and count > 0 for a, b, count in one.links), name
        placed = [gpu for group in one.groups for gpu in group]
        assert not placed or sorted(placed) == list(range(one.gpus)), name
        assert one.pcie_bytes_per_second > 0


def test_an_unknown_topology_is_named() -> None:
    with pytest.raises(UsageError, match="aws-p3"):
        topologies.find("cube")
