"""Lets torchvision be imported where its compiled operators cannot be loaded.

Changes when torchvision changes how it registers its operators.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.library import Library

# Beside a torch built without CUDA, a torchvision built with CUDA cannot load its compiled
# operators. It says nothing about that, goes on, and then fails in this module of its own, which
# registers shape functions for two operators that nobody has declared:
# "operator torchvision::nms does not exist". The models and transforms need neither of the two.
_REGISTRATIONS = "torchvision._meta_registrations"
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")

# A torch library forgets its declarations when it is collected.
_libraries: list["Library"] = []


class _DeclareBeforeRegistration(MetaPathFinder):
    """Finds nothing: it only uses the moment at which the module is looked for.

    By then torchvision has imported torch and has tried to load its operators, so nothing is
    imported early and nothing is declared twice.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == _REGISTRATIONS:
            importlib.import_module("torchvision.extension")
            _declare_missing_operators()
        return None


def install_import_hook() -> None:
    """Make every later ``import torchvision`` work; neither torch nor torchvision is imported."""
    if not any(isinstance(finder, _DeclareBeforeRegistration) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DeclareBeforeRegistration())


def make_importable() -> None:
    """Call before ``import torchvision``; harmless where torchvision loads by itself."""
    install_import_hook()


def _declare_missing_operators() -> None:
    import torch
    from torch.library import Library

    missing = [name for name in _OPERATORS if not hasattr(torch.ops.torchvision, name)]
    if not missing:
        return
    library = Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in missing:
        library.define(name + _SIGNATURE)  # type: ignore[no-untyped-call]
    _libraries.append(library)
