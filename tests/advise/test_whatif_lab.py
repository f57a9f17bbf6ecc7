"""The lab of what-if covers what it should; `benchmarks/whatif_lab.py` measures."""

from __future__ import annotations

import whatif_lab


def test_every_setting_has_a_name_of_its_own_and_covers_what_it_should() -> None:
    found = whatif_lab.settings()
    assert len({one.key for one in found}) == len(found)
    assert {one.value for one in found if one.kind == "workers"} == {1, 2, 4}
    assert {one.cached_percent for one in found if one.kind == "cache"} == {0, 25, 50, 75, 100}
    rates = [one.storage_mb for one in found if one.kind == "storage"]
    assert (min(rates), max(rates)) == (10, 200)
