"""The layer list agrees with figures that were worked out or published by others."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stash.errors import StashError
from stash.workloads import zoo
from stash.workloads.layers import (
    LayerList,
    Parameter,
    largest_batch,
    list_layers,
    training_memory_bytes,
)
from stash.workloads.workload import supervised

MEAN_SQUARES = supervised(nn.MSELoss())


def pair(batch_size: int, inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(batch_size, inputs), torch.zeros(batch_size, outputs)


def listed(model: nn.Module | Callable[[], nn.Module], inputs: int, outputs: int) -> LayerList:
    return list_layers(model, MEAN_SQUARES, pair(2, inputs, outputs))


@pytest.mark.parametrize(
    ("name", "giga_multiply_adds"),
    [
        ("alexnet", 0.71),
        ("mobilenet_v2", 0.30),
        ("squeezenet1_0", 0.82),
        ("shufflenet_v2_x0_5", 0.04),
        ("resnet18", 1.81),
        ("resnet50", 4.09),
        ("vgg11", 7.61),
        ("vit_b_16", 17.56),
    ],
)
def test_published_work_of_a_forward_pass_is_found(name: str, giga_multiply_adds: float) -> None:
    # Published counts leave out what is not a multiply-add, which weighs most in small nets.
    tolerance = {"shufflenet_v2_x0_5": 0.1, "mobilenet_v2": 0.05}.get(name, 0.03)
    model = zoo.layers(name, 2)
    assert model.forward_flops / 2 == pytest.approx(2e9 * giga_multiply_adds, rel=tolerance)


@pytest.mark.parametrize(
    ("name", "blocks", "width", "length", "vocabulary"),
    [("bert-large", 24, 1024, 384, 2), ("gpt2", 12, 768, 1024, 50_257)],
)
def test_transformers_do_the_work_that_their_shape_says(
    name: str, blocks: int, width: int, length: int, vocabulary: int
) -> None:
    pytest.importorskip("transformers")
    matrices = blocks * 12 * width**2 + width * vocabulary
    attention = blocks * 2 * length * width
    model = zoo.layers(name, 3)
    assert model.forward_flops == pytest.approx(3 * 2 * length * (matrices + attention), rel=0.01)
    assert sum(p.count for layer in model.layers for p in layer.parameters) == model.parameter_count


def test_a_linear_layer_is_as_worked_out_by_hand() -> None:
    (linear, loss) = listed(nn.Linear(5, 3), 5, 3).layers
    assert linear.name == "Linear"
    assert linear.forward_flops == 2 * 2 * 5 * 3
    assert linear.forward_bytes == 4 * (2 * 5 + 5 * 3 + 3 + 2 * 3)
    assert linear.parameters == (Parameter("weight", (3, 5)), Parameter("bias", (3,)))
    assert loss.name == "loss"


def test_layers_stand_in_the_order_in_which_they_run_whatever_their_registration() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.second = nn.Linear(4, 4)
            self.first = nn.Linear(4, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.second(torch.relu(self.first(inputs)) + inputs)
            return out

    names = [layer.name for layer in listed(Backwards, 4, 4).layers]
    assert names == ["first", "Backwards", "second", "loss"]


def test_a_module_that_runs_again_appears_again_without_its_parameters() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.linear(self.linear(inputs))
            return out

    first, second, _ = listed(Twice, 4, 4).layers
    assert (first.name, second.name) == ("linear", "linear#2")
    assert len(first.parameters) == 2
    assert second.parameters == ()


def test_a_shared_weight_is_counted_once_and_belongs_to_its_first_use() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    layers = listed(model, 4, 4)
    assert layers.parameter_count == 16
    assert [len(layer.parameters) for layer in layers.layers] == [1, 0, 0]


def test_frozen_parameters_are_told_apart() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[0].weight.requires_grad_(False)
    frozen, trained, _ = listed(model, 4, 4).layers
    assert [layer.parameters[0].trainable for layer in (frozen, trained)] == [False, True]


def test_views_and_shapes_move_nothing() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 2)), nn.Flatten(), nn.Linear(4, 4))
    assert [layer.name for layer in listed(model, 4, 4).layers] == ["3", "loss"]


def test_an_embedding_reads_the_rows_it_needs() -> None:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = model(batch).sum()
        return total

    model = nn.Sequential(nn.Embedding(10_000, 8))
    embedding = list_layers(model, loss, torch.zeros(3, dtype=torch.int64)).layers[0]
    assert embedding.forward_bytes == 3 * 8 + 2 * (3 * 8 * 4)


def test_the_model_itself_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    listed(model, 4, 4)
    listed(lambda: model, 4, 4)
    assert not model.training
    assert not model[0]._forward_pre_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_tensors_kept_as_plain_attributes_are_no_obstacle() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.mask = torch.ones(4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.linear(inputs) * self.mask + torch.arange(4)
            return out

    assert listed(Masked(), 4, 4).parameter_count == 20


def test_a_question_about_values_is_answered_no_and_a_number_is_refused() -> None:
    class Asks(nn.Module):
        def __init__(self, number: bool) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.number = number

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if inputs.isnan().any():
                raise ValueError("not a number")
            if self.number:
                inputs = inputs[: int(inputs.sum())]
            out: torch.Tensor = self.linear(inputs)
            return out

    assert listed(Asks(number=False), 4, 4).parameter_count == 20
    with pytest.raises(StashError, match="layers of Asks cannot be listed"):
        listed(Asks(number=True), 4, 4)


def saved_in_a_real_run(model: nn.Module, loss: object, batch: object) -> int:
    own = {value.data_ptr() for value in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        total = loss(model, batch)  # type: ignore[operator]
        assert total.requires_grad
        sizes = [t.untyped_storage().nbytes() for key, t in kept.items() if key not in own]
    return sum(sizes)


def test_activations_are_those_of_a_real_run() -> None:
    entry = zoo.get("tinycnn")
    batch = (torch.randn(4, 3, 64, 64), torch.randint(0, 100, (4,)))
    real = saved_in_a_real_run(entry.builder(), entry.loss, batch)
    # The loss keeps a few bytes more or less on different devices.
    assert zoo.layers("tinycnn", 4).activation_bytes == pytest.approx(real, rel=0.01)


def test_attention_matrices_are_not_kept() -> None:
    pytest.importorskip("transformers")
    one_matrix_per_block = 12 * 12 * 1024 * 1024 * 4
    kept_otherwise = 1024 * (50_257 * 2 + 12 * 40 * 768) * 4
    assert zoo.layers("gpt2", 1).activation_bytes < kept_otherwise + one_matrix_per_block


def test_training_memory_is_state_and_activations() -> None:
    layers = LayerList((), parameter_count=10, parameter_bytes=40, activation_bytes=7)
    assert training_memory_bytes(layers, bytes_per_parameter_state=16) == 167


@pytest.mark.parametrize("giga_bytes", [2, 16])
def test_the_largest_batch_fits_and_one_more_sample_does_not(giga_bytes: int) -> None:
    def needed(batch_size: int) -> int:
        return training_memory_bytes(
            zoo.layers("resnet18", batch_size), bytes_per_parameter_state=16
        )

    memory_bytes = giga_bytes * 10**9
    most = largest_batch(
        lambda size: zoo.layers("resnet18", size), memory_bytes, bytes_per_parameter_state=16
    )
    assert needed(most) <= memory_bytes < needed(most + 1)


def model_of(state: int, per_sample: int, base: int) -> Callable[[int], LayerList]:
    return lambda size: LayerList((), state, 4 * state, base + per_sample * size)


@given(
    state=st.integers(0, 10**6),
    per_sample=st.integers(1, 10**6),
    base=st.integers(0, 10**6),
    memory_bytes=st.integers(0, 10**9),
)
@settings(deadline=None)
def test_the_largest_batch_is_exact_where_memory_is_affine(
    state: int, per_sample: int, base: int, memory_bytes: int
) -> None:
    most = largest_batch(
        model_of(state, per_sample, base), memory_bytes, bytes_per_parameter_state=12, at_most=500
    )
    exact = (memory_bytes - 12 * state - base) // per_sample
    assert most == min(max(exact, 0), 500)


def test_the_largest_batch_still_fits_where_memory_grows_faster_than_expected() -> None:
    def make(size: int) -> LayerList:
        return LayerList((), 0, 0, size * 10 + (size**2 if size > 4 else 0))

    most = largest_batch(make, 1000, bytes_per_parameter_state=12)
    assert make(most).activation_bytes <= 1000 < make(most + 1).activation_bytes
