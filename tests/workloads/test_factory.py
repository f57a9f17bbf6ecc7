"""A user's file becomes a workload, and a user's mistake a sentence about that file."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from stash.errors import StashError
from stash.workloads.factory import call_factory, load_factory
from stash.workloads.workload import Workload, supervised

FILE = """
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset
    from stash.workloads.workload import Workload, supervised

    def train(batch_size=4):
        return Workload(
            name="mine",
            model=nn.Linear(3, 2),
            data=TensorDataset(torch.zeros(8, 3), torch.zeros(8, dtype=torch.long)),
            loss=supervised(nn.CrossEntropyLoss()),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
            batch_size=batch_size,
        )

    setting = 5
"""

numbers = iter(range(1000))


@pytest.fixture(autouse=True)
def _path_of_imports_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write_file(text: str) -> Path:
        path = tmp_path / f"user_file_{next(numbers)}.py"
        path.write_text(textwrap.dedent(text))
        return path

    return write_file


def message(spec: str) -> str:
    with pytest.raises(StashError) as caught:
        load_factory(spec)
    assert caught.value.exit_code == 2
    return caught.value.message


def test_a_function_in_a_file_makes_the_workload_with_the_options_it_takes(
    write: Callable[[str], Path],
) -> None:
    factory = load_factory(f"{write(FILE)}:train")
    assert call_factory(factory).batch_size == 4
    assert call_factory(factory, batch_size=7).batch_size == 7
    assert call_factory(factory, batch_size=None, data=None).batch_size == 4


def test_an_option_that_the_factory_does_not_take_is_said_to_be_unused(
    write: Callable[[str], Path],
) -> None:
    factory = load_factory(f"{write(FILE)}:train")
    with pytest.warns(UserWarning, match="takes no 'data'"):
        call_factory(factory, data=Path("somewhere"))


def test_a_file_can_import_what_lies_beside_it(write: Callable[[str], Path]) -> None:
    helper = write("VALUE = 3")
    path = write(f"from {helper.stem} import VALUE\ndef train(): return VALUE")
    assert load_factory(f"{path}:train")() == 3


def test_a_file_named_like_an_imported_module_is_imported_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "textwrap.py"
    path.write_text("def train(): return 'mine'")
    assert load_factory(f"{path}:train")() == "mine"
    assert textwrap.dedent(" a") == "a"


def test_a_spec_without_a_function_says_how_to_write_one() -> None:
    assert "path/file.py:function" in message("train.py")


def test_a_file_that_is_not_there_is_named() -> None:
    assert "nowhere/train.py" in message("nowhere/train.py:train")


def test_a_misspelt_function_gets_the_nearest_name(write: Callable[[str], Path]) -> None:
    assert "did you mean train?" in message(f"{write(FILE)}:trian")


def test_something_that_is_no_function_is_said_to_be_none(write: Callable[[str], Path]) -> None:
    assert "'setting'" in (said := message(f"{write(FILE)}:setting"))
    assert "int, not a function" in said


def test_a_file_that_fails_on_import_is_quoted(write: Callable[[str], Path]) -> None:
    path = write("import torch\nvalue = torch.zeros(2) @ torch.zeros(3)\n")
    said = message(f"{path}:train")
    assert f"{path}:2: RuntimeError" in said
    assert "value = torch.zeros(2) @ torch.zeros(3)" in said


def test_a_file_with_a_syntax_error_is_quoted(write: Callable[[str], Path]) -> None:
    path = write("def train(:\n    pass\n")
    said = message(f"{path}:train")
    assert f"{path}:1" in said
    assert "def train(:" in said


def test_a_file_that_ends_the_process_on_import_is_an_error(write: Callable[[str], Path]) -> None:
    assert "SystemExit" in message(f"{write('raise SystemExit(4)')}:train")


def test_a_factory_that_raises_is_quoted_in_the_users_own_file(
    write: Callable[[str], Path],
) -> None:
    path = write("import json\ndef train():\n    return json.loads('{')\n")
    with pytest.raises(StashError) as caught:
        call_factory(load_factory(f"{path}:train"))
    assert f"{path}:3: JSONDecodeError" in caught.value.message
    assert "return json.loads('{')" in caught.value.message


def test_a_wrong_field_is_blamed_on_the_line_that_gave_it(write: Callable[[str], Path]) -> None:
    path = write(FILE.replace("batch_size=batch_size", "batch_size='many'"))
    with pytest.raises(StashError) as caught:
        call_factory(load_factory(f"{path}:train"))
    assert f"{path}:8" in caught.value.message
    assert "'batch_size' is 'many' (str)" in caught.value.message


def test_a_factory_with_an_argument_that_nobody_can_give_is_an_error() -> None:
    def train(secret: int) -> None:
        raise AssertionError

    with pytest.raises(StashError, match="needs secret"):
        call_factory(train, batch_size=None)


def parts() -> dict[str, Any]:
    return {
        "name": "mine",
        "model": nn.Linear(3, 2),
        "data": TensorDataset(torch.zeros(8, 3)),
        "loss": supervised(nn.CrossEntropyLoss()),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch_size": 4,
    }


def test_a_mapping_or_an_object_with_the_same_fields_is_a_workload() -> None:
    assert isinstance(call_factory(parts), Workload)
    assert call_factory(lambda: SimpleNamespace(**parts())).name == "mine"


def test_a_mapping_that_lacks_a_field_is_an_error_that_names_it() -> None:
    def train() -> dict[str, Any]:
        return {name: value for name, value in parts().items() if name != "loss"}

    with pytest.raises(StashError, match=r"train\(\) in .* without 'loss'"):
        call_factory(train)


def test_something_else_than_a_workload_is_an_error() -> None:
    def train() -> int:
        return 3

    with pytest.raises(StashError, match="returned a int"):
        call_factory(train)
