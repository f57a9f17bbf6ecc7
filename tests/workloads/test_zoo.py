"""Every model of the zoo is what it says, and can be trained on what it is given."""

import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stash.errors import StashError
from stash.workloads import zoo
from stash.workloads.generate import generate_images, generate_tokens
from stash.workloads.workload import Batch, Workload

# Published by torchvision and transformers, or worked out from them by hand below.
PARAMETERS = {
    "alexnet": 61_100_840,
    "mobilenet_v2": 3_504_872,
    "squeezenet1_0": 1_248_424,
    "squeezenet1_1": 1_235_496,
    "shufflenet_v2_x0_5": 1_366_792,
    "shufflenet_v2_x1_0": 2_278_604,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg11_bn": 132_868_840,
    "vgg13_bn": 133_053_736,
    "vgg16_bn": 138_365_992,
    "vgg19_bn": 143_678_248,
    "inception_v3": 27_161_264 - 3_326_696,  # without its auxiliary head
    "densenet161": 28_681_000,
    "resnet18-cifar": 11_173_962,
    "bert-base": 108_893_186,
    "vit_b_16": 86_567_656,
    "gpt2": 124_439_808,
    "bert-large": 334_094_338,
    "tinycnn": 110_580,
}
NORMALISED_CHANNELS = {10: 2_880, 18: 4_800, 34: 8_512, 50: 26_560, 101: 52_672, 152: 75_712}
# Convolutions (and their batch norm) on the residual links.
BASIC_LINKS = sum(wide * narrow + 2 * wide for narrow, wide in ((64, 128), (128, 256), (256, 512)))
BOTTLENECK_LINKS = sum(
    wide * narrow + 2 * wide for narrow, wide in ((64, 256), (256, 512), (512, 1024), (1024, 2048))
)
# ResNet18 with the second block of each of the four stages left out.
PARAMETERS["resnet10"] = PARAMETERS["resnet18"] - sum(
    2 * 9 * channels**2 + 2 * 2 * channels for channels in (64, 128, 256, 512)
)
for _depth, _channels in NORMALISED_CHANNELS.items():
    _whole = PARAMETERS[f"resnet{_depth}"]
    PARAMETERS[f"resnet{_depth}-nobn"] = _whole - 2 * _channels
    _links = BASIC_LINKS if _depth < 50 else BOTTLENECK_LINKS
    PARAMETERS[f"resnet{_depth}-nores"] = _whole - _links


def skip_without_transformers(name: str) -> None:
    if zoo.get(name).kind == "tokens":
        pytest.importorskip("transformers")


@pytest.mark.parametrize("name", zoo.names())
def test_a_model_has_the_parameters_that_are_known_for_it(name: str) -> None:
    skip_without_transformers(name)
    assert zoo.count_parameters(name) == PARAMETERS[name]


def test_table_two_stands_beside_our_counts_and_every_difference_is_explained() -> None:
    pytest.importorskip("transformers")
    rows = zoo.table_two()
    for row in rows:
        print(f"{row.name:20} {row.paper_millions:7} {row.parameters / 1e6:8.2f}  {row.note}")
    assert [row.name for row in rows] == [
        "alexnet",
        "mobilenet_v2",
        "squeezenet1_0",
        "shufflenet_v2_x0_5",
        "resnet18",
        "resnet50",
        "vgg11",
        "bert-large",
    ]
    assert [row.paper_millions for row in rows] == [9.63, 3.4, 0.73, 1.8, 11.18, 23.59, 132.8, 345]
    assert all(row.parameters == PARAMETERS[row.name] and row.note for row in rows)


def test_the_figures_in_the_notes_are_right() -> None:
    without_head = {
        "squeezenet1_0": 512 * 1000 + 1000,
        "squeezenet1_1": 512 * 1000 + 1000,
        "resnet18": 512 * 1000 + 1000,
        "resnet50": 2048 * 1000 + 1000,
    }
    body = {name: PARAMETERS[name] - head for name, head in without_head.items()}
    assert body["squeezenet1_0"] == 735_424
    assert body["squeezenet1_1"] == 722_496
    assert body["resnet18"] == 11_176_512
    assert body["resnet50"] == 23_508_032
    biases, running_averages = NORMALISED_CHANNELS[50], 2 * NORMALISED_CHANNELS[50]
    assert body["resnet50"] + biases + running_averages == 23_587_712


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("squeezenet", "squeezenet1_0"),
        ("shufflenet", "shufflenet_v2_x0_5"),
        ("vit", "vit_b_16"),
        ("bert", "bert-large"),
        ("BERT_large", "bert-large"),
        ("ResNet50-NoBN", "resnet50-nobn"),
    ],
)
def test_short_names_and_other_spellings_work(short: str, name: str) -> None:
    assert zoo.get(short).name == name


def test_an_unknown_model_gets_the_nearest_names() -> None:
    with pytest.raises(StashError, match="did you mean resnet50") as caught:
        zoo.get("resent50")
    assert caught.value.exit_code == 2
    with pytest.raises(StashError, match="known are alexnet"):
        zoo.get("????")


def test_without_transformers_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(StashError, match=r"pip install '.\[nlp\]'"):
        zoo.get("gpt2").builder()


def test_language_models_can_be_built_before_any_vision_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("transformers")
    others = [finder for finder in sys.meta_path if not is_hook(finder)]
    monkeypatch.setattr(sys, "meta_path", others)
    with torch.device("meta"):
        zoo.get("gpt2").builder()
    # Transformers imports torchvision, which needs the hook.
    assert any(is_hook(finder) for finder in sys.meta_path)


def is_hook(finder: object) -> bool:
    return type(finder).__module__ == "stash.workloads.torchvision_ops"


@pytest.mark.parametrize("name", ["resnet18", "resnet18-nobn", "resnet18-nores", "resnet50-nores"])
def test_every_parameter_of_a_variant_gets_a_finite_gradient(name: str) -> None:
    torch.manual_seed(0)
    entry = zoo.get(name)
    model = entry.builder()
    loss = entry.loss(model, (torch.randn(2, 3, 32, 32), torch.tensor([1, 2])))
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_deep_networks_without_batch_norm_stay_within_half_precision() -> None:
    torch.manual_seed(0)
    model = zoo.get("resnet101-nobn").builder()
    with torch.no_grad():
        assert model(torch.randn(1, 3, 64, 64)).abs().max() < 1000


def test_variants_lack_what_they_say_they_lack() -> None:
    with torch.device("meta"):
        kinds = {
            name: {type(module).__name__ for module in zoo.get(name).builder().modules()}
            for name in ("resnet50-nobn", "resnet50-nores")
        }
    assert "BatchNorm2d" not in kinds["resnet50-nobn"]
    assert "BatchNorm2d" in kinds["resnet50-nores"]
    names = [layer.name for layer in zoo.layers("resnet50-nores", 2).layers]
    assert "layer1.0" not in names
    assert "layer1.0" in [layer.name for layer in zoo.layers("resnet50", 2).layers]


def first_batch(workload: Workload, batch_size: int) -> Batch:
    assert isinstance(workload.data, Dataset)
    return next(iter(DataLoader(workload.data, batch_size)))


def train_once(workload: Workload) -> float:
    torch.manual_seed(0)
    model = workload.build_model().train()
    optimizer = workload.optimizer(model.parameters())
    batch = first_batch(workload, workload.batch_size)
    loss = workload.loss(model, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())


def test_tinycnn_trains_on_generated_pictures(tmp_path: Path) -> None:
    data = generate_images(tmp_path / "p", count=20, width=143, height=107)
    workload = zoo.build("tinycnn", data=data)
    assert (workload.name, workload.batch_size) == ("tinycnn", 16)
    assert 3 < train_once(workload) < 7


def test_batches_of_tokens_have_the_shapes_of_the_example_batch(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    data = generate_tokens(tmp_path / "t", count=4096)
    workload = zoo.build("gpt2", data=data)
    batch = first_batch(workload, 2)
    assert {key: tuple(value.shape) for key, value in batch.items()} == {
        key: tuple(value.shape) for key, value in zoo.example_batch("gpt2", 2).items()
    }


def test_without_data_the_generated_data_of_the_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STASH_CACHE_DIR", str(tmp_path))
    workload = zoo.build("tinycnn", device_kind="accelerator")
    assert workload.batch_size == 32
    assert (tmp_path / "data" / "images-143x107-1024" / "stash-data.json").exists()


def test_a_batch_size_that_is_asked_for_is_used(tmp_path: Path) -> None:
    data = generate_images(tmp_path / "p", count=2, width=8, height=8)
    assert zoo.build("resnet18", data=data, batch_size=3).batch_size == 3
    with pytest.raises(StashError, match="'batch_size' is 0"):
        zoo.build("resnet18", data=data, batch_size=0)


def test_unreadable_pictures_are_written_to_the_problems_file(tmp_path: Path) -> None:
    data = generate_images(tmp_path / "p", count=4, width=70, height=70)
    next(data.rglob("*.jpg")).write_bytes(b"")
    workload = zoo.build("tinycnn", data=data, problems=tmp_path / "problems")
    first_batch(workload, 4)
    assert len((tmp_path / "problems").read_text().splitlines()) == 1


def test_more_folders_than_the_model_has_classes_are_refused(tmp_path: Path) -> None:
    data = generate_images(tmp_path / "p", count=101, width=8, height=8, classes=101)
    with pytest.raises(StashError, match="101 folders"):
        zoo.build("tinycnn", data=data)
