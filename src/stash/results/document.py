"""The building blocks of every document of Stash: strict, immutable, bounded values."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """A value object: frozen, no unknown fields, no silent conversions, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


#: Bounds keep a damaged or hostile file from reaching arithmetic or a terminal.
Text = Annotated[str, Field(max_length=4096)]
Name = Annotated[str, Field(min_length=1, max_length=512)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Positive = Annotated[int, Field(ge=1, le=10**15)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
SignedSeconds = Annotated[float, Field(ge=-1e9, le=1e9)]
Quantity = Annotated[float, Field(ge=0, le=1e18)]
Signed = Annotated[float, Field(ge=-1e18, le=1e18)]


class Interval(Model):
    """An estimate with its 95 % interval; no interval where there were too few rounds for one."""

    estimate: Signed
    low: Signed | None
    high: Signed | None


def derived(estimate: float, low: float | None = None, high: float | None = None) -> Interval:
    """A number made from those of a document; the bounds of documents are not its business."""
    return Interval.model_construct(estimate=estimate, low=low, high=high)
