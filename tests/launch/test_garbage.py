"""What Python searches for garbage, and when, around an import."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from stash.launch.garbage import collecting_later


class Ring:
    """Holds itself: only a search finds that nobody else does."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_searched_inside_and_all_of_it_later() -> None:
    with collecting_later():
        assert not gc.isenabled()
        ring = weakref.ref(Ring())
        assert ring() is not None
    assert gc.isenabled()
    gc.collect()
    assert ring() is None


def test_what_was_made_inside_is_old_afterwards() -> None:
    with collecting_later():
        ring = Ring()
    assert gc.get_freeze_count() == 0
    assert any(one is ring for one in gc.get_objects(generation=2))


def test_an_error_inside_leaves_the_search_on() -> None:
    with pytest.raises(ValueError, match="refused"), collecting_later():
        raise ValueError("refused")
    assert gc.isenabled()


def test_a_program_that_has_switched_the_search_off_finds_it_off() -> None:
    gc.disable()
    with collecting_later():
        pass
    assert not gc.isenabled()


def test_what_a_program_has_taken_out_of_the_search_stays_out() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with collecting_later():
        pass
    assert gc.get_freeze_count() == before > 0
