"""Pictures in folders, read and augmented as for ImageNet training.

Changes when pictures are found, decoded or augmented in another way.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from stash.errors import StashError, UsageError

_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp")
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
_UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)
# These tell of the machine, not of the picture.
_MACHINE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE})


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """Every picture under a folder; its class is the folder of the first level it lies in.

    A picture that cannot be read is replaced by the next one that can, and its path is written to
    the file ``problems``, once, so that a few bad files do not end a long run unseen.
    """

    def __init__(self, folder: Path, image_size: int, problems: Path | None = None) -> None:
        self.folder = folder
        self.problems = problems
        self.classes, self._names, self._labels = _index(folder)
        self._transform = _training_transform(image_size)
        self._unreadable: set[int] = set()

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        for candidate in self._from(index):
            if candidate in self._unreadable:
                continue
            try:
                picture = self._decode(candidate)
            except _UNREADABLE as error:
                if isinstance(error, OSError) and error.errno in _MACHINE_ERRORS:
                    raise
                self._report(candidate)
                continue
            return self._transform(picture), int(self._labels[candidate])
        raise StashError(
            f"None of the {len(self)} pictures under {self.folder} can be read; "
            "check that the files are whole pictures, or leave --data out to use generated ones."
        )

    def path(self, index: int) -> Path:
        return self.folder / os.fsdecode(bytes(self._names[index]))

    def _from(self, index: int) -> Iterator[int]:
        count = len(self)
        return ((index + step) % count for step in range(count))

    def _decode(self, index: int) -> Image.Image:
        with Image.open(self.path(index)) as picture:
            decoded: Image.Image = picture.convert("RGB")
            return decoded

    def _report(self, index: int) -> None:
        self._unreadable.add(index)
        if self.problems is not None:
            _append_once(self.problems, str(self.path(index)))


def read_problems(problems: Path) -> tuple[str, ...]:
    """The pictures that could not be read so far, in the order in which they were met."""
    if not problems.exists():
        return ()
    return tuple(problems.read_text(errors="surrogateescape").splitlines())


def _index(folder: Path) -> tuple[tuple[str, ...], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Classes, and for every picture its path below the folder and its class."""
    names = _find_pictures(folder)
    tops = [name.split(os.sep, 1)[0] if os.sep in name else "" for name in names]
    classes = tuple(sorted(set(tops)))
    number_of = {name: number for number, name in enumerate(classes)}
    # Arrays, because a list of a million strings is copied into every loader process, page by
    # page, as reference counts change, and competes with the page cache that is measured.
    labels = np.array([number_of[top] for top in tops], dtype=np.int64)
    return classes, np.array([os.fsencode(name) for name in names]), labels


def _find_pictures(folder: Path) -> list[str]:
    if not folder.exists():
        raise UsageError(f"There is no folder {folder}; {_WHAT_TO_GIVE}")
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; {_WHAT_TO_GIVE}")
    names: list[str] = []
    for place, _, files in os.walk(folder, onerror=_raise_unreadable, followlinks=True):
        below = os.path.relpath(place, folder)
        before = "" if below == os.curdir else below + os.sep
        names += [before + name for name in files if _is_picture(name)]
    if not names:
        raise UsageError(f"No picture ({', '.join(_ENDINGS)}) lies under {folder}; {_WHAT_TO_GIVE}")
    return sorted(names)


_WHAT_TO_GIVE = "give --data a folder of pictures, or leave it out to use generated ones."


def _is_picture(name: str) -> bool:
    return name.lower().endswith(_ENDINGS) and not name.startswith(".")


def _raise_unreadable(error: OSError) -> None:
    raise UsageError(
        f"The folder {error.filename} cannot be listed ({error.strerror}); "
        "make it readable for this user, or give another one with --data."
    )


def _append_once(file: Path, line: str) -> None:
    """Many loader processes share the file: the lock makes one line of what several met."""
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+", errors="surrogateescape") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if line not in stream.read().splitlines():
            stream.write(line + "\n")
            stream.flush()


def _training_transform(image_size: int) -> Callable[[Image.Image], torch.Tensor]:
    from stash.workloads import torchvision_ops

    torchvision_ops.make_importable()
    from torchvision import transforms

    steps = [
        transforms.RandomResizedCrop(image_size),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(_IMAGENET_MEAN, _IMAGENET_DEVIATION),
    ]
    composed: Callable[[Image.Image], torch.Tensor] = transforms.Compose(steps)
    return composed
