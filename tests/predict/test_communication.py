"""Messages by PyTorch's rules, links by the machine's graph, all-reduce by hand-worked numbers."""

import numpy as np
import pytest

from stash.hardware import catalog, gpus, topologies
from stash.predict import communication, facts
from stash.predict.communication import Link, Links, Message
from stash.predict.constants import TRANSPORTS, Constants

MIB = 2**20
IDEAL = Constants(
    bandwidth_efficiency=dict.fromkeys(TRANSPORTS, 1.0),
    latency_factor=0.0,
    message_seconds=0.0,
    contention=0.0,
    straggling=0.0,
    sharing=0.0,
)


def model(*elements: int) -> facts.ModelFacts:
    """One layer a tensor, in the order of the forward pass."""
    zeros = np.zeros((2, len(elements)))
    return facts.ModelFacts(
        name="own",
        flops=zeros,
        bytes=zeros,
        convolution=np.zeros(len(elements), dtype=bool),
        gradients=tuple(enumerate(elements)),
        parameters=sum(elements),
        activation_bytes=(0.0, 0.0),
        optimizer="SGD",
        batch_size=1,
    )


def one(value: float) -> np.ndarray:
    return np.array([float(value)])


def seconds(size: float, gpus_per_node: int, nodes: int, inside: Link, between: Link) -> float:
    links = Links.of([inside], [between], IDEAL)
    found = communication.all_reduce_seconds(
        one(size), one(gpus_per_node), one(nodes), links, IDEAL
    )
    return float(found[0])


def test_the_first_bucket_is_small_and_tensors_are_never_split() -> None:
    quarter = MIB // 4  # elements of a MiB
    sent = communication.messages(model(100 * quarter, 10 * quarter, 20 * quarter, quarter))
    # From the last tensor on: 1 MiB; 20 and 10 reach the cap of 25 together; 100 alone.
    assert [message.elements for message in sent] == [quarter, 30 * quarter, 100 * quarter]
    assert [message.last_layer for message in sent] == [3, 1, 0]


def test_messages_of_resnet50_and_vgg16_follow_ddp() -> None:
    resnet = communication.messages(facts.find("resnet50"))
    assert sum(message.elements for message in resnet) == 25_557_032
    vgg = communication.messages(facts.find("vgg16"))
    # The first fully connected layer, 392 MiB of weights, is one bucket and is not split.
    assert max(message.elements for message in vgg) >= 25088 * 4096


def test_per_tensor_and_all_in_one() -> None:
    assert len(communication.messages(model(1, 2, 3), "tensors")) == 3
    assert communication.messages(model(1, 2, 3), "one") == (Message(6, 0),)


def test_a_ring_moves_its_bytes_twice_less_one_share() -> None:
    link = Link("nvlink", 100.0)
    assert seconds(1000, 4, 1, link, link) == pytest.approx(2 * 3 / 4 * 1000 / 100)
    assert seconds(1000, 1, 1, link, link) == 0


def test_the_network_is_the_slowest_link_of_a_ring() -> None:
    fast, slow = Link("nvlink", 1000.0), Link("tcp", 10.0)
    assert seconds(1000, 4, 2, fast, slow) == pytest.approx(2 * 7 / 8 * 1000 / 10)
    assert seconds(1000, 4, 2, slow, fast) == pytest.approx(2 * 7 / 8 * 1000 / 10)


def test_links_come_from_the_machine() -> None:
    v100, t4 = gpus.find("v100"), gpus.find("t4")
    cube = topologies.find("aws-p3.16xlarge")
    assert communication.inside(cube, v100, 8) == Link("nvlink", 120e9)
    assert communication.inside(cube, v100, 1) is None
    no_peers = communication.inside(topologies.find("aws-g4dn.12xlarge"), t4, 4)
    assert no_peers == Link("host", 6e9)
    halves = communication.inside(topologies.find("aws-p2.16xlarge"), gpus.find("k80"), 16)
    assert halves == Link("pcie", 6e9)
    assert communication.between(catalog.find("p3.16xlarge")) == Link("cloud", 10e9 / 8)
    assert communication.between(catalog.find("p4d.24xlarge")) == Link("rdma", 400e9 / 8)


def link_of(name: str) -> Link | None:
    one = catalog.find(name)
    assert one.accelerator is not None
    assert not one.topology
    return communication.inside(None, one.accelerator, one.gpus)


def test_gpus_of_a_mesh_are_a_slice_of_it_where_no_topology_is_published() -> None:
    quad = topologies.find("aws-p3.8xlarge").nvlink_ring_bytes_per_second
    assert quad is not None
    assert link_of("n1-standard-32+4xV100") == Link("nvlink", quad)
    assert link_of("gpu_8x_v100") == Link("nvlink", 120e9)
    for name in ("p3.8xlarge", "n1-standard-32+4xV100"):
        kinds = communication.slices(catalog.find(name), 4)
        assert [round(70 * chance) for _, chance in kinds] == [62, 6, 2]
    pairs = communication.slices(catalog.find("n1-standard-16+2xV100"), 2)
    assert [round(28 * chance) for _, chance in pairs] == [12, 8, 8]  # by 0, 1 and 2 NVLinks


def test_cards_with_a_switch_or_without_a_mesh_are_no_slices() -> None:
    assert link_of("2x_A100-80GB-SXM_SECURE") == Link("nvswitch", 240e9)
    for name in ("2x_A100-80GB-SXM_SECURE", "Standard_NC48ads_A100_v4", "n1-standard-8+1xV100"):
        one = catalog.find(name)
        assert communication.slices(one, one.gpus) == []


def test_slices_add_up_to_certainty() -> None:
    kinds = communication.slices(catalog.find("p3.8xlarge"), 4)
    assert sum(chance for _, chance in kinds) == pytest.approx(1)
    assert communication.slices(catalog.find("p3.16xlarge"), 8) == []


def test_the_papers_formula_is_latency_a_message_and_bytes_over_bandwidth() -> None:
    links = Links.of([Link("nvlink", 100.0)], [None], IDEAL)
    found = communication.plain_seconds(one(3), one(1000), one(4), one(1), links)
    assert found[0] == pytest.approx(3 * communication.HOP_SECONDS["nvlink"] + 10)
