"""The scaling table: speed-up and efficiency by hand, and no ratio of unlike things."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from profiles import HAND_WORKED, profile_of
from stash.errors import StashError
from stash.report.scaling import render_scaling, scaling_rows
from stash.results.profile import Profile


def at(workers: int, warm: float, **changes: Any) -> Profile:
    return profile_of(
        [{**HAND_WORKED, "warm": warm}] * 5,
        machine_changes={"workers_per_node": workers, **changes.pop("machine", {})},
        workload_changes=changes,
    )


def test_speed_up_and_efficiency_are_relative_to_the_fewest_workers() -> None:
    rows = scaling_rows([at(4, 0.256), at(1, 0.160), at(2, 0.160)])
    assert [row.workers for row in rows] == [1, 2, 4]
    assert [row.samples_per_second.estimate for row in rows] == pytest.approx([200, 400, 500])
    assert [row.speed_up for row in rows] == pytest.approx([1, 2, 2.5])
    assert [row.efficiency for row in rows] == pytest.approx([1, 1, 0.625])
    assert rows[2].waiting is not None
    assert rows[2].waiting.estimate == pytest.approx(1 - 0.100 / 0.256)
    assert rows[2].largest_stall == "prep"


def test_a_sweep_that_starts_at_two_workers_is_relative_to_two() -> None:
    rows = scaling_rows([at(2, 0.160), at(4, 0.160)])
    assert [row.efficiency for row in rows] == pytest.approx([1, 1])


def test_profiles_without_data_are_compared_without_data() -> None:
    bare = profile_of([{"solo": 0.1, "node": 0.13}] * 5)
    assert scaling_rows([bare, at(4, 0.2)])[0].step == "node"


def test_profiles_without_a_common_step_say_what_is_needed() -> None:
    with pytest.raises(StashError, match="needs step warm or node"):
        scaling_rows([profile_of([{"solo": 0.1}] * 5), at(4, 0.2)])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "vgg11"}, "workload.name"),
        ({"batch_per_worker": 64}, "workload.batch_per_worker"),
        ({"dtype": "amp"}, "workload.dtype"),
        ({"machine": {"torch": "2.0"}}, "machine.torch"),
        ({"machine": {"device": "cpu"}}, "machine.device"),
    ],
)
def test_unlike_profiles_are_refused_by_the_field_that_differs(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(StashError, match=field):
        scaling_rows([at(1, 0.2), at(2, 0.2, **changes)])


def test_no_profiles_are_an_error() -> None:
    with pytest.raises(StashError, match="at least one"):
        scaling_rows([])


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_table_fits_80_columns(encoding: str) -> None:
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, encoding=encoding)
    table = render_scaling([at(1, 0.16), at(2, 0.161), at(16, 12.256)])
    Console(file=stream, width=80).print(table)
    stream.flush()
    text = data.getvalue().decode(encoding)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "against 1 worker." in text
