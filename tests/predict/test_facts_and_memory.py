"""Facts that come with the package are those of the models themselves; memory grows by samples."""

import os
from pathlib import Path

import numpy as np
import pytest

from stash.errors import UsageError
from stash.hardware import gpus
from stash.predict import facts, memory
from stash.workloads import zoo

OWN = Path(__file__).parents[2] / "examples" / "own_workload.py"


def test_every_model_of_the_zoo_has_packaged_facts() -> None:
    packaged = facts._packaged()
    assert {name.replace("_", "-") for name in zoo.names()} == set(packaged)


@pytest.mark.parametrize("name", ["tinycnn", "resnet18", "vgg11", "shufflenet_v2_x0_5"])
def test_packaged_facts_are_those_of_the_model(name: str) -> None:
    packaged, fresh = facts.find(name), facts.of_zoo(name)
    assert packaged.as_document() == fresh.as_document()


def test_facts_at_a_batch_are_those_of_the_layers_at_that_batch() -> None:
    known = facts.find("resnet18")
    listed = zoo.layers("resnet18", 7)
    assert known.flops[0] + 7 * known.flops[1] == pytest.approx(
        np.array([layer.forward_flops for layer in listed.layers])
    )
    fixed, per_sample = known.activation_bytes
    assert fixed + 7 * per_sample == pytest.approx(listed.activation_bytes)


def test_facts_of_a_users_model_are_found_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = f"{OWN}:signals"
    found = facts.find(spec)
    assert found.parameters == found.gradient_bytes // 4 > 0
    monkeypatch.setattr(facts, "_trace_factory", lambda spec, data: pytest.fail("traced again"))
    assert facts.find(spec).as_document() == found.as_document()
    (kept,) = (tmp_path / "stash" / "layers").glob("*.json")
    kept.write_text("{")  # a damaged cache is no cache
    with pytest.raises(pytest.fail.Exception, match="traced again"):
        facts.find(spec)


@pytest.mark.parametrize("what", ["data", "stash", "torch"])
def test_layers_are_found_anew_with_other_data_and_other_versions(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    traced: list[Path | None] = []

    def trace(spec: str, data: Path | None) -> facts.ModelFacts:
        traced.append(data)
        return facts.find("tinycnn")

    monkeypatch.setattr(facts, "_trace_factory", trace)
    spec, data = f"{OWN}:signals", tmp_path / "data"
    data.mkdir()
    for _ in range(2):
        facts.find(spec, data)
    assert traced == [data]
    if what == "data":
        os.utime(data, ns=(1, 1))
    elif what == "stash":
        monkeypatch.setattr("stash.__version__", "0.0.1")
    else:
        monkeypatch.setattr(facts.metadata, "version", lambda name: "0.0.1")
    facts.find(spec, data)
    assert len(traced) == 2
    facts.find(spec)
    assert traced[2:] == [None]


def test_short_names_work_and_unknown_ones_are_answered() -> None:
    assert facts.find("squeezenet").name == "squeezenet1_0"
    with pytest.raises(UsageError, match="resnet50"):
        facts.find("resnet5")


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    known, card = facts.find("resnet50"), gpus.find("v100")
    for dtype in ("fp32", "amp"):
        most = memory.largest_batch(known, card, dtype)
        assert memory.peak_bytes(known, most, dtype) <= memory.usable_bytes(card)
        assert memory.peak_bytes(known, most + 1, dtype) > memory.usable_bytes(card)
    assert memory.largest_batch(known, card, "amp") > memory.largest_batch(known, card, "fp32")


def test_a_model_larger_than_the_card_has_no_batch() -> None:
    known = facts.find("bert-large")
    small = gpus.find("k80")
    assert memory.largest_batch(known, small, "fp32") < 8
