"""A Workload checks its fields where it is made, and batches move whole."""

from collections import defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from stash.errors import StashError
from stash.workloads.workload import Workload, move, supervised

SAMPLES = TensorDataset(torch.randn(8, 3), torch.randint(0, 2, (8,)))


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "name": "linear",
        "model": lambda: nn.Linear(3, 2),
        "data": SAMPLES,
        "loss": supervised(nn.CrossEntropyLoss()),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 4,
    } | changes


def test_one_iteration_of_a_workload_lowers_its_loss() -> None:
    workload = Workload(**fields())
    model = workload.build_model()
    optimizer = workload.optimizer(model.parameters())
    batch = next(iter(DataLoader(SAMPLES, workload.batch_size)))
    before = workload.loss(model, batch)
    before.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert workload.loss(model, batch) < before


def test_a_model_that_is_already_built_is_used_itself() -> None:
    model = nn.Linear(3, 2)
    assert Workload(**fields(model=model)).build_model() is model


def test_a_loader_and_a_list_of_samples_are_data() -> None:
    Workload(**fields(data=DataLoader(SAMPLES)))
    Workload(**fields(data=[(torch.zeros(3), 0)]))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", 5, "5 (int)"),
        ("model", "resnet", "function without arguments that builds one"),
        ("data", "/data/train", "a path must be opened by the factory"),
        ("loss", nn.CrossEntropyLoss(), "stash.supervised"),
        ("optimizer", torch.optim.SGD(nn.Linear(1, 1).parameters()), "lambda parameters"),
        ("batch_size", 0, "0 (int)"),
        ("batch_size", True, "at least 1"),
        ("batch_size", 2.5, "2.5 (float)"),
        ("collate", 3, "list of samples"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_got_and_what_is_expected(
    field: str, value: object, said: str
) -> None:
    with pytest.raises(StashError) as caught:
        Workload(**fields(**{field: value}))
    assert f"'{field}'" in caught.value.message
    assert said in caught.value.message
    assert caught.value.exit_code == 2


def test_a_model_function_that_builds_no_model_is_an_error() -> None:
    with pytest.raises(StashError, match="returned 3"):
        Workload(**fields(model=lambda: 3)).build_model()


Pair = namedtuple("Pair", ["inputs", "target"])


@dataclass(frozen=True)
class Record:
    inputs: torch.Tensor
    label: str


def test_every_kind_of_batch_moves_and_keeps_its_kind() -> None:
    tensor = torch.zeros(2)
    counted: defaultdict[str, Any] = defaultdict(int, {"a": tensor})
    batch = (Pair(tensor, [tensor, "text"]), {"b": counted}, Record(tensor, "cat"), None, 5)
    pair, mapping, record, nothing, number = move(batch, "meta")
    assert isinstance(pair, Pair)
    assert pair.inputs.is_meta
    assert pair.target[0].is_meta
    assert pair.target[1] == "text"
    assert isinstance(mapping["b"], defaultdict)
    assert mapping["b"]["a"].is_meta
    assert mapping["b"]["new"] == 0
    assert isinstance(record, Record)
    assert record.inputs.is_meta
    assert (record.label, nothing, number) == ("cat", None, 5)
    assert not counted["a"].is_meta


def test_objects_that_know_how_to_move_move_themselves() -> None:
    moved = move(pack_sequence([torch.zeros(3, 1)]), "cpu")
    assert isinstance(moved, PackedSequence)


leaves = st.builds(torch.zeros, st.integers(1, 3)) | st.text() | st.none() | st.floats()
nested = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=12,
)


def shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", tuple(value.shape))
    if isinstance(value, list | tuple):
        return (type(value), [shape(item) for item in value])
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return repr(value)


@settings(max_examples=40, deadline=None)
@given(nested)
def test_moving_changes_nothing_but_the_device(batch: Any) -> None:
    assert shape(move(batch, "meta")) == shape(batch)
