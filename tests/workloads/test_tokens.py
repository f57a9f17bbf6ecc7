"""Token files are mapped, cut, and refused by name when they cannot be."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from stash.errors import StashError
from stash.workloads.tokens import TokenFile, next_token_sample, question_sample

WORDS = (np.arange(1000) * 37) % 30_000


def write(path: Path, dtype: str = "<u2") -> Path:
    if path.suffix == ".npy":
        np.save(path, WORDS.astype(dtype))
    else:
        WORDS.astype(dtype).tofile(path)
    return path


def open_file(path: Path, **changes: Any) -> TokenFile:
    options: dict[str, Any] = {"vocabulary": 30_000, "make_sample": next_token_sample} | changes
    return TokenFile(path, 64, **options)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("a.bin", "<u2"), ("a.bin", "<u4"), ("a.npy", "<u2"), ("a.npy", "<i8")],
)
def test_every_form_of_file_gives_the_same_samples(tmp_path: Path, name: str, dtype: str) -> None:
    tokens = open_file(write(tmp_path / name, dtype))
    assert len(tokens) == 1000 // 64
    assert tokens[3]["input_ids"].tolist() == WORDS[192:256].tolist()


def test_a_next_token_sample_is_labelled_with_itself(tmp_path: Path) -> None:
    sample = open_file(write(tmp_path / "a.bin"))[0]
    assert torch.equal(sample["input_ids"], sample["labels"])


def test_a_question_is_padded_and_its_answer_lies_inside_the_text(tmp_path: Path) -> None:
    tokens = open_file(write(tmp_path / "a.bin"), make_sample=question_sample)
    for index in range(len(tokens)):
        sample = tokens[index]
        length = int(sample["attention_mask"].sum())
        assert 16 <= length <= 64
        assert sample["input_ids"][length:].eq(0).all()
        assert 0 <= sample["start_positions"] <= sample["end_positions"] < length
    again = tokens[5]
    assert all(torch.equal(value, again[key]) for key, value in tokens[5].items())


def test_pickling_carries_the_path_and_not_the_file(tmp_path: Path) -> None:
    tokens = open_file(write(tmp_path / "a.bin"))
    assert tokens[0]["input_ids"] is not None
    pickled = pickle.dumps(tokens)
    assert len(pickled) < 1000
    assert torch.equal(pickle.loads(pickled)[2]["labels"], tokens[2]["labels"])


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_loader_processes_read_the_same_batches(tmp_path: Path, start: str) -> None:
    tokens = open_file(write(tmp_path / "a.bin"))
    loader = DataLoader(tokens, batch_size=3, num_workers=1, multiprocessing_context=start)
    here = DataLoader(tokens, batch_size=3)
    for there, batch in zip(loader, here, strict=True):
        assert torch.equal(there["input_ids"], batch["input_ids"])


def test_there_is_no_sample_after_the_last_whole_one(tmp_path: Path) -> None:
    tokens = open_file(write(tmp_path / "a.bin"))
    with pytest.raises(IndexError):
        tokens[len(tokens)]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StashError, match=r"There is no file .*absent\.bin"):
        open_file(tmp_path / "absent.bin")


def test_a_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "cut.bin")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StashError, match=r"cut\.bin has 1999 bytes"):
        open_file(path)


def test_a_torn_array_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "torn.npy")
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(StashError, match=r"torn\.npy is not a whole"):
        open_file(path)


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "is empty"), (b"\x01\x00" * 63, "63 tokens, fewer")]
)
def test_a_file_that_is_too_short_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "short.bin"
    path.write_bytes(content)
    with pytest.raises(StashError, match=said) as caught:
        open_file(path)
    assert str(path) in caught.value.message


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "real.npy", np.zeros(100))
    (tmp_path / "text.txt").write_text("words")
    for name, said in (("real.npy", "whole numbers"), ("text.txt", "not a token file")):
        with pytest.raises(StashError, match=said):
            open_file(tmp_path / name)


def test_a_token_outside_the_vocabulary_is_told_before_the_model_fails(tmp_path: Path) -> None:
    with pytest.raises(StashError, match=r"outside the model's vocabulary of 100"):
        open_file(write(tmp_path / "a.bin"), vocabulary=100)[0]
