"""The predictor's room, and at once the function `stash.predict(...)` of the public API.

Python binds an imported room to its name in the package, so the room itself has to be callable.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from stash.predict.api import predict

        return predict(*arguments, **options)


sys.modules[__name__].__class__ = _Room
