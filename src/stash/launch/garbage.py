"""Python's search for garbage, put off while much is imported.

An import makes hundreds of thousands of objects that all stay. Python looks through them again and
again meanwhile: a seventh of the time that importing torch's compiler takes.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collecting_later() -> Iterator[None]:
    """Nothing is searched inside; what was made there counts as old afterwards, as after a search.

    A program that is not ours may have switched the search off, or have taken objects out of it:
    then nothing is changed.
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # both together make all objects old, without a look at them
        gc.enable()
