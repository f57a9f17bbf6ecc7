"""What a request becomes: the machine that it names, with its price, on every node the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stash.errors import UsageError
from stash.hardware import catalog
from stash.launch.nodes import introduce
from stash.launch.placement import Placement
from stash.launch.prepare import Prepared, prepare
from stash.launch.request import Request


@pytest.fixture(autouse=True)
def _no_catalog_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    catalog.forget()
    yield
    catalog.forget()


def prepared(tmp_path: Path, **options: Any) -> Prepared:
    script = tmp_path / "train.py"
    script.touch()
    return prepare(Request(workload=str(script), device="cpu", nproc_per_node=2, **options))


def test_a_machine_that_is_named_goes_into_the_plan_with_its_price(tmp_path: Path) -> None:
    plan = prepared(tmp_path, instance="aws:P3.16xlarge", max_usd=1.0).plan
    assert (plan.instance, plan.price_usd_per_hour) == ("p3.16xlarge", 24.48)
    own = prepared(tmp_path, instance="p3.16xlarge", price_usd_per_hour=9.0).plan
    assert (own.instance, own.price_usd_per_hour) == ("p3.16xlarge", 9.0)
    unnamed = prepared(tmp_path).plan
    assert (unnamed.instance, unnamed.price_usd_per_hour) == (None, None)


def test_an_unknown_machine_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Unknown instance 'p3\.61xlarge'.*p3\.16xlarge"):
        prepared(tmp_path, instance="p3.61xlarge")


def test_nodes_that_would_each_find_a_largest_batch_of_their_own_are_asked_for_a_number() -> None:
    asked = Request(workload="tinycnn", device="cpu", nproc_per_node=1, batch_size="max")
    with pytest.raises(UsageError, match=r"Profile one machine .* Then give that number"):
        prepare(asked, nodes=2)


def test_all_nodes_must_name_the_same_machine(tmp_path: Path) -> None:
    place = Placement(2, 1, "127.0.0.1", 1)
    one, other = (
        introduce(prepared(tmp_path, instance=name), place).asked["--instance"]
        for name in ("p3.8xlarge", "p3.16xlarge")
    )
    assert (one, other) == ("p3.8xlarge", "p3.16xlarge")
