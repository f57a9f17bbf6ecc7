"""Buckets of gradients on emulated devices: as many messages as the real model sends."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from stash.hardware.device_names import parse
from stash.workloads.train import _buckets

MIB = 2**20


def test_unscaled_bytes_keep_the_buckets_of_pytorch() -> None:
    assert _buckets(parse("emulated:v100")) == {}


@pytest.mark.parametrize("scale", [0.01, 0.1, 2.0])
def test_buckets_shrink_and_grow_with_the_bytes(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", MIB, raising=False)
    settings = _buckets(parse(f"emulated:v100:bytes={scale}"))
    if "bucket_cap_mb_list" in settings:
        first, others = settings["bucket_cap_mb_list"]
    else:  # releases before 2.13 set the first one elsewhere
        first, others = dist._DEFAULT_FIRST_BUCKET_BYTES / MIB, settings["bucket_cap_mb"]  # type: ignore[attr-defined]
    assert first == pytest.approx(scale, abs=1 / MIB)
    assert others == pytest.approx(25 * scale)
