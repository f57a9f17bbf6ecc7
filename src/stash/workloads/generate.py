"""Makes data sets that cost as much to read and decode as real ones, the same on every machine.

Changes when generated data should look, or be kept, in another way.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from PIL import Image

from stash.errors import StashError, UsageError

Request: TypeAlias = Mapping[str, str | int]

MANIFEST = "stash-data.json"
_SCHEMA = "stash.data/1"
_PROCEDURE = 1  # counts up whenever the same request would make other data

# ImageNet's commonest picture, and the crop that is trained on: other crops scale with it.
_WIDTH, _HEIGHT, _CROP = 500, 375, 224
_QUALITY = 88
_PICTURES = 1024
_CLASSES = 10
_TOKENS = 8_000_000
_VOCABULARY = 30_522  # BERT's; every one of its numbers is a token of GPT-2, too
# Each level adds grain of this amplitude to a picture of this fraction of the full size.
_LEVELS = ((1 / 32, 0.45), (1 / 12, 0.35), (1 / 5, 0.3))


def cache_folder() -> Path:
    """Where generated data is kept: STASH_CACHE_DIR, else the user's cache folder."""
    if own := os.environ.get("STASH_CACHE_DIR"):
        return Path(own) / "data"
    users = os.environ.get("XDG_CACHE_HOME")
    return (Path(users) if users else Path.home() / ".cache") / "stash" / "data"


def default_data(
    kind: Literal["vision", "tokens"],
    *,
    image_size: int = _CROP,
    count: int | None = None,
    cache_dir: Path | None = None,
) -> Path:
    """A folder of pictures for crops of ``image_size``, or a token file, made when first asked."""
    cache = cache_dir or cache_folder()
    if kind == "tokens":
        count = count or _TOKENS
        return generate_tokens(cache / f"tokens-{count}", count=count)
    width, height = (round(side * image_size / _CROP) for side in (_WIDTH, _HEIGHT))
    count = count or _PICTURES
    folder = cache / f"images-{width}x{height}-{count}"
    return generate_images(folder, count=count, width=width, height=height)


def generate_images(
    folder: Path,
    *,
    count: int,
    width: int = _WIDTH,
    height: int = _HEIGHT,
    classes: int = _CLASSES,
    seed: int = 0,
) -> Path:
    """Write ``count`` JPEG files, spread over ``classes`` folders; every fourth one is upright."""
    if min(count, width, height, classes) < 1:
        raise UsageError("Pictures need a count, a width, a height and classes of at least 1.")
    request: Request = {
        "kind": "images",
        "procedure": _PROCEDURE,
        "count": count,
        "width": width,
        "height": height,
        "classes": classes,
        "quality": _QUALITY,
        "seed": seed,
    }

    def fill(target: Path) -> None:
        for number in range(min(classes, count)):
            (target / f"class_{number:04d}").mkdir()
        for number in range(count):
            size = (height, width) if number % 4 == 3 else (width, height)
            picture = _picture(np.random.default_rng([seed, number]), *size)
            place = target / f"class_{number % classes:04d}" / f"picture_{number:07d}.jpg"
            picture.save(place, "JPEG", quality=_QUALITY)

    _make_once(folder, request, fill)
    return folder


def generate_tokens(
    folder: Path, *, count: int, vocabulary: int = _VOCABULARY, seed: int = 0
) -> Path:
    """Write ``count`` tokens, common ones as much more often than rare ones as words are."""
    if not (count >= 1 and 2 <= vocabulary <= 65_536):
        raise UsageError("Tokens need a count of at least 1 and a vocabulary of 2 to 65536.")
    request: Request = {
        "kind": "tokens",
        "procedure": _PROCEDURE,
        "count": count,
        "vocabulary": vocabulary,
        "seed": seed,
    }

    def fill(target: Path) -> None:
        # A logarithm that is uniform: the frequency of a token is one over its rank (Zipf).
        chance = np.random.default_rng(seed).random(count, dtype=np.float32)
        tokens = np.minimum(vocabulary**chance, vocabulary - 1).astype("<u2")
        tokens.tofile(target / "tokens.bin")

    _make_once(folder, request, fill)
    return folder / "tokens.bin"


def _picture(chance: np.random.Generator, width: int, height: int) -> Image.Image:
    """Clouds of colour with finer and finer grain: most energy in coarse detail, as in nature."""
    picture = Image.fromarray(chance.integers(40, 216, (3, 4, 3), dtype=np.uint8))
    for fraction, amplitude in _LEVELS:
        size = (max(round(width * fraction), 2), max(round(height * fraction), 2))
        picture = _with_grain(chance, picture.resize(size, Image.Resampling.BICUBIC), amplitude)
    picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    # Photographs have smooth parts and rough parts, which is why their sizes differ.
    coarse = Image.fromarray(chance.integers(0, 256, (4, 5), dtype=np.uint8))
    rough = np.asarray(coarse.resize((width, height), Image.Resampling.BILINEAR), dtype=np.int16)
    return _with_grain(chance, picture, chance.uniform(0.25, 0.85), rough)


def _with_grain(
    chance: np.random.Generator,
    picture: Image.Image,
    amplitude: float,
    where: np.ndarray[Any, np.dtype[np.int16]] | None = None,
) -> Image.Image:
    pixels = np.asarray(picture, dtype=np.int16)
    reach = round(128 * amplitude)
    grain = chance.integers(-reach, reach + 1, pixels.shape[:2], dtype=np.int16)
    if where is not None:
        grain = (grain * where) >> 8
    return Image.fromarray(np.clip(pixels + grain[..., None], 0, 255).astype(np.uint8))


def _make_once(folder: Path, request: Request, fill: Callable[[Path], None]) -> None:
    """Fill the folder, or leave it as it is where an equal request has been served before."""
    if folder.exists() and _holds(folder, request):
        return  # a folder has its name only when it is whole; a shared one may not be writable
    try:
        with _only_one_process(folder):
            if _holds(folder, request):
                return
            partial = folder.parent / f".{folder.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            fill(partial)
            _write_manifest(partial, request)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    except OSError as error:
        raise StashError(
            f"Data cannot be written to {folder} ({error.strerror}); free some space there, or "
            "set STASH_CACHE_DIR to a folder with room."
        ) from error


@contextmanager
def _only_one_process(folder: Path) -> Iterator[None]:
    """All workers of a node ask for the same data at the same moment: one makes it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _holds(folder: Path, request: Request) -> bool:
    """Whether all of the request is there; refuses to touch what somebody else put there."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    manifest = _read_manifest(folder)
    if manifest.get("request") != request:
        raise UsageError(
            f"{folder} already holds other data; choose another folder, or remove this one."
        )
    return (manifest.get("files"), manifest.get("bytes")) == _measure(folder)


def _read_manifest(folder: Path) -> dict[str, object]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _write_manifest(folder: Path, request: Request) -> None:
    files, size_bytes = _measure(folder)
    manifest = {"schema": _SCHEMA, "request": request, "files": files, "bytes": size_bytes}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _measure(folder: Path) -> tuple[int, int]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    return len(files), sum(path.stat().st_size for path in files)
