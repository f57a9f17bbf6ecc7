"""torchvision can be imported beside any torch, and nothing is imported or declared in vain."""

import importlib
import subprocess
import sys

from stash.workloads import torchvision_ops


def test_after_the_hook_torchvision_can_be_imported_and_torch_was_not_imported_early() -> None:
    program = """
import sys
from importlib import util

# By its file, because importing the package may import torch.
path = util.find_spec("stash").submodule_search_locations[0] + "/workloads/torchvision_ops.py"
spec = util.spec_from_file_location("torchvision_ops", path)
hook = util.module_from_spec(spec)
spec.loader.exec_module(hook)

hook.install_import_hook()
hook.install_import_hook()
assert "torch" not in sys.modules
assert sum(type(finder).__name__ == "_DeclareBeforeRegistration" for finder in sys.meta_path) == 1

import torch
import torchvision

torchvision.models.resnet18
assert hasattr(torch.ops.torchvision, "nms") and hasattr(torch.ops.torchvision, "qnms")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_operators_that_are_there_already_are_not_declared_again() -> None:
    torchvision_ops.make_importable()
    importlib.import_module("torchvision")
    declared = len(torchvision_ops._libraries)
    torchvision_ops._declare_missing_operators()
    assert len(torchvision_ops._libraries) == declared
