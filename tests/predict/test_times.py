"""The overlap recurrence on numbers worked out by hand, and rules that no constants may break."""

import numpy as np
import pytest

from stash.hardware import gpus
from stash.predict import compute, facts, times
from stash.predict.communication import Link, Links, Message, messages
from stash.predict.compute import LayerSeconds
from stash.predict.constants import FITTED, TRANSPORTS, Constants

IDEAL = Constants(
    bandwidth_efficiency=dict.fromkeys(TRANSPORTS, 1.0),
    latency_factor=0.0,
    message_seconds=0.0,
    contention=0.0,
    straggling=0.0,
    sharing=0.0,
)
#: Two layers: forward 1 s each, backward 2 s each, no optimizer.
LAYERS = LayerSeconds(np.array([[1.0, 1.0]]), np.array([[2.0, 2.0]]), np.array([0.0]))
TWO = np.array([2.0])
ONE = np.array([1.0])


def together(sent: list[Message], bytes_per_second: float, constants: Constants = IDEAL) -> float:
    links = Links.of([Link("nvlink", bytes_per_second)], [None], constants)
    found = times.iteration_seconds(LAYERS, sent, TWO, ONE, links, constants, bytes_per_element=1.0)
    return float(found.together[0])


def test_an_exchange_that_ends_with_the_backward_pass_costs_nothing() -> None:
    # A ring of two moves each byte once: 2 s for the last layer's 2 bytes, ready after 2 s.
    assert together([Message(2, 1)], 1.0) == 6.0


def test_what_is_left_after_the_backward_pass_is_exposed() -> None:
    assert together([Message(2, 1), Message(3, 0)], 1.0) == 6.0 + 3.0
    assert together([Message(5, 1), Message(1, 0)], 1.0) == 2.0 + max(4.0, 2.0 + 5.0 + 1.0)


def test_without_overlap_everything_is_exposed() -> None:
    links = Links.of([Link("nvlink", 1.0)], [None], IDEAL)
    found = times.iteration_seconds(
        LAYERS, [Message(2, 1)], TWO, ONE, links, IDEAL, bytes_per_element=1.0, overlap=False
    )
    assert found.together[0] == 6.0 + 2.0


def test_computing_is_slower_while_gradients_travel() -> None:
    slowed = Constants(**{**IDEAL.__dict__, "contention": 0.5})
    assert together([Message(1, 1)], 1.0, slowed) == 6.0 + 0.5 * 1.0


def test_one_worker_pays_for_nothing() -> None:
    links = Links.of([None], [None], FITTED)
    found = times.iteration_seconds(LAYERS, [Message(5, 0)], ONE, ONE, links, FITTED)
    assert found.together[0] == found.alone[0] == 6.0


def test_many_configurations_give_what_each_gives_alone() -> None:
    known = facts.find("resnet50")
    cards = [gpus.find(name) for name in ("v100", "a100", "t4")]
    batch = np.array([16.0, 32.0, 64.0])
    per_node = np.array([8.0, 8.0, 4.0])
    inside = [Link("nvlink", 120e9), Link("nvswitch", 240e9), Link("host", 6e9)]
    between = [Link("tcp", 1e9), Link("rdma", 50e9), Link("cloud", 1e9)]
    nodes = np.array([2.0, 3.0, 1.0])

    def run(index: list[int]) -> np.ndarray:
        device = compute.devices([cards[i] for i in index], ["fp32"] * len(index), FITTED)
        layers = compute.layer_seconds(known, batch[index], device, FITTED)
        links = Links.of([inside[i] for i in index], [between[i] for i in index], FITTED)
        found = times.iteration_seconds(
            layers, messages(known), per_node[index], nodes[index], links, FITTED
        )
        return found.together

    assert run([0, 1, 2]) == pytest.approx(np.concatenate([run([i]) for i in range(3)]))


@pytest.mark.parametrize("name", ["resnet18", "vgg16", "bert-base"])
def test_a_faster_network_is_never_slower_and_more_nodes_are_never_faster(name: str) -> None:
    known = facts.find(name)
    rates = np.array([0.1e9, 1e9, 10e9])
    device = compute.devices([gpus.find("v100")] * 3, ["amp"] * 3, FITTED)
    layers = compute.layer_seconds(known, np.full(3, 16.0), device, FITTED)

    def run(nodes: float) -> np.ndarray:
        links = Links.of([Link("nvlink", 120e9)] * 3, [Link("tcp", r) for r in rates], FITTED)
        return times.iteration_seconds(
            layers, messages(known), np.full(3, 8.0), np.full(3, nodes), links, FITTED
        ).together

    assert all(np.diff(run(2)) <= 0)
    assert all(run(4) >= run(2))


def test_halving_precision_never_makes_a_gpu_slower() -> None:
    known = facts.find("resnet50")
    for key in ("v100", "a100", "k80", "p100"):
        device = compute.devices([gpus.find(key)] * 2, ["fp32", "amp"], FITTED)
        whole = compute.layer_seconds(known, np.full(2, 64.0), device, FITTED).whole
        assert whole[1] <= whole[0], key
