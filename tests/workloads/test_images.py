"""Pictures are found at any depth, and a bad one is named, counted and stepped over."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from stash.errors import StashError
from stash.workloads.images import ImageFolder, read_problems


def paint(path: Path, colour: str = "red") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30), colour).save(path)
    return path


def test_the_class_of_a_picture_is_its_folder_of_the_first_level(tmp_path: Path) -> None:
    paint(tmp_path / "cat" / "a.jpg")
    paint(tmp_path / "dog" / "young" / "deep" / "b.PNG")
    (tmp_path / "dog" / "notes.txt").write_text("no picture")
    images = ImageFolder(tmp_path, 32)
    assert images.classes == ("cat", "dog")
    assert [images[index][1] for index in range(len(images))] == [0, 1]
    assert images.path(1) == tmp_path / "dog" / "young" / "deep" / "b.PNG"


def test_a_flat_folder_is_one_class_of_normalised_crops(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        paint(tmp_path / name)
    images = ImageFolder(tmp_path, 24)
    pixels, label = images[0]
    assert pixels.shape == (3, 24, 24)
    assert label == 0
    red = (1 - 0.485) / 0.229
    assert pixels[0].mean().item() == pytest.approx(red, abs=0.05)


def test_names_that_are_not_ascii_survive(tmp_path: Path) -> None:
    path = paint(tmp_path / "été" / "猫.jpg")
    assert ImageFolder(tmp_path, 8).path(0) == path


def test_grey_and_transparent_pictures_become_colour(tmp_path: Path) -> None:
    Image.new("L", (9, 9)).save(tmp_path / "grey.png")
    Image.new("RGBA", (9, 9)).save(tmp_path / "clear.png")
    images = ImageFolder(tmp_path, 8)
    assert {images[index][0].shape for index in range(2)} == {torch.Size([3, 8, 8])}


@pytest.mark.parametrize(
    ("given", "said"),
    [("absent", "There is no folder"), ("empty", "No picture"), ("file", "is not a folder")],
)
def test_a_folder_without_pictures_is_named(tmp_path: Path, given: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(StashError, match=said) as caught:
        ImageFolder(tmp_path / given, 8)
    assert str(tmp_path / given) in caught.value.message
    assert "--data" in caught.value.message


def test_a_corrupt_picture_is_named_once_and_the_next_one_taken(tmp_path: Path) -> None:
    data, problems = tmp_path / "data", tmp_path / "problems.txt"
    torn = paint(data / "a" / "0.jpg")
    torn.write_bytes(torn.read_bytes()[:200])
    (data / "a" / "1.jpg").write_bytes(b"no picture at all")
    paint(data / "b" / "2.jpg")
    images = ImageFolder(data, 8, problems)
    assert [images[index][1] for index in (0, 1, 2, 0)] == [1, 1, 1, 1]
    assert read_problems(problems) == (str(data / "a" / "0.jpg"), str(data / "a" / "1.jpg"))


def test_loader_processes_share_one_list_of_problems(tmp_path: Path) -> None:
    data, problems = tmp_path / "data", tmp_path / "problems.txt"
    bad = paint(data / "0.jpg")
    bad.write_bytes(b"")
    paint(data / "1.jpg")
    images = ImageFolder(data, 8, problems)
    for _ in DataLoader(images, sampler=[0, 0, 0, 0], num_workers=2):
        pass
    assert read_problems(problems) == (str(bad),)


def test_no_problems_file_means_no_problems(tmp_path: Path) -> None:
    assert read_problems(tmp_path / "none") == ()


def test_a_folder_of_nothing_but_corrupt_pictures_is_an_error(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_bytes(b"no picture")
    with pytest.raises(StashError, match=r"None of the 2 pictures"):
        ImageFolder(tmp_path, 8)[0]
