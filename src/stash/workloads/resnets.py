"""ResNets of the depths and variants of the paper's micro study that torchvision has not.

Changes when the study asks for another depth or variant. Imports torchvision: import it late.
"""

from collections.abc import Mapping

import torch
from torch import nn

from stash.workloads import torchvision_ops

torchvision_ops.make_importable()

from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet  # noqa: E402

_BLOCKS: Mapping[int, tuple[type[BasicBlock | Bottleneck], list[int]]] = {
    10: (BasicBlock, [1, 1, 1, 1]),
    18: (BasicBlock, [2, 2, 2, 2]),
    34: (BasicBlock, [3, 4, 6, 3]),
    50: (Bottleneck, [3, 4, 6, 3]),
    101: (Bottleneck, [3, 4, 23, 3]),
    152: (Bottleneck, [3, 8, 36, 3]),
}


class PlainBasicBlock(BasicBlock):  # type: ignore[misc]
    """The block without its residual link."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        last: torch.Tensor = self.relu(self.bn2(self.conv2(out)))
        return last


class PlainBottleneck(Bottleneck):  # type: ignore[misc]
    """The block without its residual link."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        last: torch.Tensor = self.relu(self.bn3(self.conv3(out)))
        return last


_PLAIN: Mapping[type[nn.Module], type[nn.Module]] = {
    BasicBlock: PlainBasicBlock,
    Bottleneck: PlainBottleneck,
}


def resnet(depth: int, *, batch_norm: bool = True, residual: bool = True) -> nn.Module:
    """A ResNet for 1000 classes, with or without its batch norm and its residual links.

    Batch norm is taken out of all of the network and nothing is put in its place, as the paper's
    study does: convolutions get no bias, so the variants differ by batch norm alone. Without
    residual links the convolutions on the links go, too: they would have no gradient.
    """
    block, blocks = _BLOCKS[depth]
    norm_layer = None if batch_norm else nn.Identity
    model: nn.Module = ResNet(block if residual else _PLAIN[block], blocks, norm_layer=norm_layer)
    if not residual:
        _remove_link_convolutions(model)
    elif not batch_norm:
        _calm(model, sum(blocks))
    return model


def resnet18_for_small_pictures() -> nn.Module:
    """The ResNet18 that is trained on CIFAR-10: no pooling and no stride before its blocks."""
    model = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
    model.maxpool = nn.Identity()
    small: nn.Module = model
    return small


def _remove_link_convolutions(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, BasicBlock | Bottleneck):
            module.downsample = None


def _calm(model: nn.Module, blocks: int) -> None:
    """Scale each block's last convolution down, or sums over many blocks overflow half precision.

    Each block adds its output to the sum, and no batch norm brings the sum back to size.
    """
    for module in model.modules():
        if isinstance(module, BasicBlock | Bottleneck):
            last = module.conv3 if isinstance(module, Bottleneck) else module.conv2
            with torch.no_grad():
                last.weight.mul_(blocks**-0.5)
