"""Text as one long file of token numbers, cut into samples of equal length.

Changes when token files come in another form, or a model family wants other samples.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import Dataset

from stash.errors import StashError, UsageError

Sample: TypeAlias = dict[str, torch.Tensor]
Tokens: TypeAlias = np.ndarray[Any, Any]

_PEEK = 4096
_HIGHEST_UPPER_HALF = 16  # of a 32-bit token: vocabularies stay below a million
_WHAT_TO_GIVE = (
    "give --data a .bin file of 16- or 32-bit token numbers or a .npy file, "
    "or leave it out to use generated tokens."
)


class TokenFile(Dataset[Sample]):
    """Samples of ``sequence_length`` tokens, mapped from the file by each process for itself."""

    def __init__(
        self,
        path: Path,
        sequence_length: int,
        *,
        vocabulary: int,
        make_sample: Callable[[torch.Tensor, int], Sample],
    ) -> None:
        self.path = path
        self.sequence_length = sequence_length
        self.vocabulary = vocabulary
        self._make_sample = make_sample
        self._tokens: Tokens | None = None
        total = len(self._mapped())
        self._tokens = None  # forked loader workers would share this map; each opens its own
        self._count = total // sequence_length
        if self._count == 0:
            raise UsageError(
                f"{path} holds {total} tokens, fewer than one sample of "
                f"{sequence_length}; {_WHAT_TO_GIVE}"
            )

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < self._count:
            raise IndexError(index)
        start = index * self.sequence_length
        tokens = self._mapped()[start : start + self.sequence_length].astype(np.int64)
        if not 0 <= tokens.min() <= tokens.max() < self.vocabulary:
            raise StashError(
                f"{self.path} holds token {tokens.max()} near position {start}, outside the "
                f"model's vocabulary of {self.vocabulary}; use a file made with the model's own "
                "tokenizer."
            )
        return self._make_sample(torch.from_numpy(tokens), index)

    def __getstate__(self) -> dict[str, object]:
        # A map belongs to one process; pickled, it would become a copy of the whole file.
        return {**self.__dict__, "_tokens": None}

    def _mapped(self) -> Tokens:
        if self._tokens is None:
            self._tokens = _map(self.path)
        return self._tokens


def next_token_sample(tokens: torch.Tensor, index: int) -> Sample:
    """For models that predict the next token: the model itself shifts the labels."""
    return {"input_ids": tokens, "labels": tokens.clone()}


def question_sample(tokens: torch.Tensor, index: int) -> Sample:
    """For models that mark an answer in a text: padded texts of many lengths, as in SQuAD."""
    chance = np.random.default_rng(index)
    full = len(tokens)
    length = int(chance.integers(full // 4, full, endpoint=True))
    start = int(chance.integers(0, length))
    mask = torch.zeros(full, dtype=torch.int64)
    mask[:length] = 1
    return {
        "input_ids": tokens * mask,
        "attention_mask": mask,
        "start_positions": torch.tensor(start),
        "end_positions": torch.tensor(min(start + 3, length - 1)),
    }


def _map(path: Path) -> Tokens:
    if not path.is_file():
        raise UsageError(f"There is no file {path}; {_WHAT_TO_GIVE}")
    if path.suffix not in {".bin", ".npy"}:
        raise UsageError(f"{path} is not a token file; {_WHAT_TO_GIVE}")
    try:
        return _map_npy(path) if path.suffix == ".npy" else _map_bin(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); {_WHAT_TO_GIVE}") from error


def _map_npy(path: Path) -> Tokens:
    try:
        tokens: Tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path} is not a whole .npy file ({error}); {_WHAT_TO_GIVE}") from error
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu":
        raise UsageError(f"{path} does not hold whole numbers; {_WHAT_TO_GIVE}")
    return tokens.reshape(-1)


def _map_bin(path: Path) -> Tokens:
    size_bytes = path.stat().st_size
    if size_bytes == 0:
        raise UsageError(f"{path} is empty; {_WHAT_TO_GIVE}")
    dtype = _guess_dtype(path)
    if size_bytes % dtype.itemsize:
        raise UsageError(
            f"{path} has {size_bytes} bytes, which is no whole number of {dtype.itemsize}-byte "
            "tokens; it may have been cut off: write it again."
        )
    return np.memmap(path, dtype=dtype, mode="r")


def _guess_dtype(path: Path) -> np.dtype[Any]:
    """16 or 32 bits: the file does not say, but the upper halves of 32-bit tokens are tiny."""
    halves = np.fromfile(path, dtype="<u2", count=_PEEK)
    is_wide = len(halves) >= 2 and bool((halves[1::2] < _HIGHEST_UPPER_HALF).all())
    is_text = bool((halves[0::2] >= _HIGHEST_UPPER_HALF).any())
    return np.dtype("<u4") if is_wide and is_text else np.dtype("<u2")
