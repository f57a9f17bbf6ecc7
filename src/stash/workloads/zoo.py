"""The models that Stash knows by name; nothing is ever downloaded.

Changes when a model is added, or what is known about one is corrected.
"""

import difflib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Literal, TypeAlias

import torch
from torch import nn

from stash.errors import UsageError
from stash.workloads import tinycnn, torchvision_ops
from stash.workloads.generate import default_data
from stash.workloads.images import ImageFolder
from stash.workloads.layers import LayerList, list_layers
from stash.workloads.tokens import Sample, TokenFile, next_token_sample, question_sample
from stash.workloads.workload import Batch, Loss, OptimizerFactory, Workload, supervised

DeviceKind: TypeAlias = Literal["cpu", "accelerator"]


@dataclass(frozen=True, kw_only=True)
class Images:
    """Samples of a vision model."""

    size: int = 224
    classes: int = 1000


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Samples of a language model."""

    sequence_length: int
    vocabulary: int
    make_sample: Callable[[torch.Tensor, int], Sample]


@dataclass(frozen=True, kw_only=True)
class ZooEntry:
    """One model, and what Stash needs to train it."""

    name: str
    builder: Callable[[], nn.Module]
    inputs: Images | Tokens
    optimizer: OptimizerFactory

    batch_size: int = 32
    """Per accelerator; the paper's smallest."""

    cpu_batch_size: int = 4
    """Per worker on a CPU: an iteration should not last minutes."""

    paper_millions: float | None = None
    """Gradients as printed in the paper's Table II, in millions."""

    note: str = ""
    """Why the count differs from the paper's."""

    @property
    def kind(self) -> Literal["vision", "tokens"]:
        return "vision" if isinstance(self.inputs, Images) else "tokens"

    @property
    def loss(self) -> Loss:
        return _CROSS_ENTROPY if isinstance(self.inputs, Images) else _models_own_loss


@dataclass(frozen=True, kw_only=True)
class TableTwoRow:
    """A model of the paper's Table II: the printed count beside ours."""

    name: str
    paper_millions: float
    parameters: int
    note: str


def names() -> tuple[str, ...]:
    """Every model, without the short names that also work."""
    return tuple(_ENTRIES)


def get(name: str) -> ZooEntry:
    wanted = _plain(name)
    wanted = _ALIASES.get(wanted, wanted)
    for known, entry in _ENTRIES.items():
        if _plain(known) == wanted:
            return entry
    nearest = difflib.get_close_matches(wanted, [*_ENTRIES, *_ALIASES], n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(nearest)}?" if nearest else f"known are {', '.join(names())}."
    raise UsageError(f"There is no model '{name}'; {hint} Your own: path/file.py:function.")


def build(
    name: str,
    *,
    data: Path | None = None,
    batch_size: int | None = None,
    device_kind: DeviceKind = "cpu",
    problems: Path | None = None,
) -> Workload:
    """The workload of a model on the given data, or on generated data where none is given.

    Pictures that cannot be read are written down in the file ``problems``.
    """
    entry = get(name)
    usual = entry.cpu_batch_size if device_kind == "cpu" else entry.batch_size
    return Workload(
        name=entry.name,
        model=entry.builder,
        data=_open_data(entry, data, problems),
        loss=entry.loss,
        optimizer=entry.optimizer,
        batch_size=usual if batch_size is None else batch_size,
    )


def example_batch(name: str, batch_size: int) -> Batch:
    """A batch with the shapes of real ones and without memory."""
    inputs = get(name).inputs
    with torch.device("meta"):
        if isinstance(inputs, Images):
            pictures = torch.empty(batch_size, 3, inputs.size, inputs.size)
            return pictures, torch.empty(batch_size, dtype=torch.int64)
    sample = inputs.make_sample(torch.zeros(inputs.sequence_length, dtype=torch.int64), 0)
    return {
        key: torch.empty((batch_size, *value.shape), dtype=value.dtype, device="meta")
        for key, value in sample.items()
    }


def layers(name: str, batch_size: int) -> LayerList:
    """The layers of a model at a batch size, without memory."""
    entry = get(name)
    return list_layers(entry.builder, entry.loss, example_batch(name, batch_size))


def count_parameters(name: str) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in get(name).builder().parameters())


def table_two() -> list[TableTwoRow]:
    """The models of the paper's Table II, in its order, with the counts that we train."""
    return [
        TableTwoRow(
            name=entry.name,
            paper_millions=entry.paper_millions,
            parameters=count_parameters(entry.name),
            note=entry.note,
        )
        for entry in _PAPER_MODELS
        if entry.paper_millions is not None
    ]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _open_data(
    entry: ZooEntry, data: Path | None, problems: Path | None
) -> ImageFolder | TokenFile:
    inputs = entry.inputs
    if isinstance(inputs, Tokens):
        return TokenFile(
            data or default_data("tokens"),
            inputs.sequence_length,
            vocabulary=inputs.vocabulary,
            make_sample=inputs.make_sample,
        )
    folder = data or default_data("vision", image_size=inputs.size)
    images = ImageFolder(folder, inputs.size, problems)
    if len(images.classes) > inputs.classes:
        raise UsageError(
            f"{folder} has {len(images.classes)} folders, each a class, but {entry.name} tells "
            f"only {inputs.classes} classes apart; give a folder with fewer, or one further up."
        )
    return images


_CROSS_ENTROPY = supervised(nn.CrossEntropyLoss())


def _models_own_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


def _torchvision(name: str, **options: bool) -> nn.Module:
    torchvision_ops.make_importable()
    models = importlib.import_module("torchvision.models")
    model: nn.Module = getattr(models, name)(weights=None, **options)
    return model


def _resnet18_cifar() -> nn.Module:
    from stash.workloads import resnets

    return resnets.resnet18_for_small_pictures()


def _resnet(depth: int, batch_norm: bool = True, residual: bool = True) -> nn.Module:
    from stash.workloads import resnets

    return resnets.resnet(depth, batch_norm=batch_norm, residual=residual)


def _transformers(model: str) -> ModuleType:
    torchvision_ops.make_importable()  # transformers imports torchvision where it is installed
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(
            f"The model {model} needs the package transformers, which is not installed ({error}); "
            "`pip install '.[nlp]'` in the folder of Stash brings it."
        ) from error


def _bert(name: str, **shape: int) -> nn.Module:
    transformers = _transformers(name)
    model: nn.Module = transformers.BertForQuestionAnswering(transformers.BertConfig(**shape))
    return model


_bert_large = partial(
    _bert,
    "bert-large",
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
)


def _gpt2() -> nn.Module:
    transformers = _transformers("gpt2")
    # The cache serves generation only; naming the loss keeps a warning away.
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    gpt2.loss_type = "ForCausalLM"
    model: nn.Module = gpt2
    return model


_SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4)
_ADAMW = partial(torch.optim.AdamW, lr=3e-5)

# In the order of the paper's Table II.
_PAPER_MODELS = (
    ZooEntry(
        name="alexnet",
        builder=partial(_torchvision, "alexnet"),
        inputs=Images(),
        optimizer=partial(_SGD, lr=0.01),
        cpu_batch_size=8,
        paper_millions=9.63,
        note="torchvision's has 58.6 million in its three fully connected layers and 2.5 million "
        "in its convolutions; neither part, nor their sum, is the printed figure.",
    ),
    ZooEntry(
        name="mobilenet_v2",
        builder=partial(_torchvision, "mobilenet_v2"),
        inputs=Images(),
        optimizer=_SGD,
        paper_millions=3.4,
        note="3.4 is the rounded figure of the MobileNet-v2 paper; torchvision's has 3.50.",
    ),
    ZooEntry(
        name="squeezenet1_0",
        builder=partial(_torchvision, "squeezenet1_0"),
        inputs=Images(),
        optimizer=partial(_SGD, lr=0.01),
        paper_millions=0.73,
        note="0.735 without the last convolution, whose 513,000 depend on the number of classes; "
        "version 1.0, not 1.1 (0.722), is what the authors' scripts train.",
    ),
    ZooEntry(
        name="shufflenet_v2_x0_5",
        builder=partial(_torchvision, "shufflenet_v2_x0_5"),
        inputs=Images(),
        optimizer=_SGD,
        cpu_batch_size=8,
        paper_millions=1.8,
        note="The authors' scripts train v2 x0.5, which has 1.37; x1.0 has 2.28. No ShuffleNet of "
        "torchvision has 1.8.",
    ),
    ZooEntry(
        name="resnet18",
        builder=partial(_torchvision, "resnet18"),
        inputs=Images(),
        optimizer=_SGD,
        paper_millions=11.18,
        note="11.18 without the last layer, whose 513,000 depend on the number of classes.",
    ),
    ZooEntry(
        name="resnet50",
        builder=partial(_torchvision, "resnet50"),
        inputs=Images(),
        optimizer=_SGD,
        paper_millions=23.59,
        note="23.51 without the last layer; 23.59 is that with a bias for every convolution and "
        "with the running averages of batch norm, which have no gradients.",
    ),
    ZooEntry(
        name="vgg11",
        builder=partial(_torchvision, "vgg11"),
        inputs=Images(),
        optimizer=partial(_SGD, lr=0.01),
        cpu_batch_size=2,
        paper_millions=132.8,
        note="The same model: 132.86, cut off rather than rounded.",
    ),
    ZooEntry(
        name="bert-large",
        builder=_bert_large,
        inputs=Tokens(sequence_length=384, vocabulary=30_522, make_sample=question_sample),
        optimizer=_ADAMW,
        batch_size=4,
        cpu_batch_size=1,
        paper_millions=345,
        note="With the head for SQuAD it has 334.1; the BERT paper itself says 340.",
    ),
)

_OTHER_MODELS = (
    ZooEntry(
        name="tinycnn",
        builder=tinycnn.tiny_cnn,
        inputs=Images(size=tinycnn.IMAGE_SIZE, classes=tinycnn.CLASSES),
        optimizer=partial(_SGD, lr=0.01),
        cpu_batch_size=16,
    ),
    ZooEntry(
        name="squeezenet1_1",
        builder=partial(_torchvision, "squeezenet1_1"),
        inputs=Images(),
        optimizer=partial(_SGD, lr=0.01),
    ),
    ZooEntry(
        name="shufflenet_v2_x1_0",
        builder=partial(_torchvision, "shufflenet_v2_x1_0"),
        inputs=Images(),
        optimizer=_SGD,
    ),
    ZooEntry(
        name="inception_v3",
        # Without the auxiliary head and the slow random initial weights.
        builder=partial(_torchvision, "inception_v3", aux_logits=False, init_weights=False),
        inputs=Images(size=299),
        optimizer=_SGD,
        cpu_batch_size=2,
    ),
    ZooEntry(
        name="densenet161",
        builder=partial(_torchvision, "densenet161"),
        inputs=Images(),
        optimizer=_SGD,
        cpu_batch_size=2,
    ),
    ZooEntry(
        name="resnet18-cifar",
        builder=_resnet18_cifar,
        inputs=Images(size=32, classes=10),
        optimizer=_SGD,
        batch_size=128,
        cpu_batch_size=16,
    ),
    ZooEntry(
        name="bert-base",
        builder=partial(_bert, "bert-base"),
        inputs=Tokens(sequence_length=384, vocabulary=30_522, make_sample=question_sample),
        optimizer=_ADAMW,
        batch_size=8,
        cpu_batch_size=1,
    ),
    ZooEntry(
        name="vit_b_16",
        builder=partial(_torchvision, "vit_b_16"),
        inputs=Images(),
        optimizer=_ADAMW,
        cpu_batch_size=2,
    ),
    ZooEntry(
        name="gpt2",
        builder=_gpt2,
        inputs=Tokens(sequence_length=1024, vocabulary=50_257, make_sample=next_token_sample),
        optimizer=_ADAMW,
        batch_size=4,
        cpu_batch_size=1,
    ),
)


def _resnets() -> Iterator[ZooEntry]:
    for depth in (10, 18, 34, 50, 101, 152):
        builders: dict[str, Callable[[], nn.Module]] = {
            f"resnet{depth}": partial(_resnet, depth),
            f"resnet{depth}-nobn": partial(_resnet, depth, batch_norm=False),
            f"resnet{depth}-nores": partial(_resnet, depth, residual=False),
        }
        for name, builder in builders.items():
            yield ZooEntry(name=name, builder=builder, inputs=Images(), optimizer=_SGD)


def _vggs() -> Iterator[ZooEntry]:
    for depth in (11, 13, 16, 19):
        for name in (f"vgg{depth}", f"vgg{depth}_bn"):
            yield ZooEntry(
                name=name,
                builder=partial(_torchvision, name),
                inputs=Images(),
                optimizer=partial(_SGD, lr=0.01),
                cpu_batch_size=2,
            )


_ALIASES = {
    "bert": "bert-large",
    "mobilenet": "mobilenet-v2",
    "shufflenet": "shufflenet-v2-x0-5",
    "squeezenet": "squeezenet1-0",
    "vit": "vit-b-16",
}

_ENTRIES: dict[str, ZooEntry] = {}
for _entry in (*_PAPER_MODELS, *_OTHER_MODELS, *_resnets(), *_vggs()):
    # What the paper's table says of a model stands before what its family says.
    _ENTRIES.setdefault(_entry.name, _entry)
