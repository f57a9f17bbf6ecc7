"""Stash: where does training time (and money) go while the accelerators wait?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stash.advise.compare import compare as compare
    from stash.advise.recommend import recommend as recommend
    from stash.advise.share import share as share
    from stash.advise.whatif import whatif as whatif
    from stash.engine.own_feed import feed as feed
    from stash.errors import StashError as StashError
    from stash.launch.api import load as load
    from stash.launch.api import profile as profile
    from stash.launch.links import links as links
    from stash.results.profile import Profile as Profile
    from stash.workloads.workload import Workload as Workload
    from stash.workloads.workload import supervised as supervised

_PUBLIC = {
    "StashError": "stash.errors",
    "feed": "stash.engine.own_feed",
    "Profile": "stash.results.profile",
    "links": "stash.launch.links",
    "recommend": "stash.advise.recommend",
    "load": "stash.launch.api",
    "profile": "stash.launch.api",
    "compare": "stash.advise.compare",
    "share": "stash.advise.share",
    "whatif": "stash.advise.whatif",
    "Workload": "stash.workloads.workload",
    "supervised": "stash.workloads.workload",
}
__all__ = ["__version__", "predict", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import stash` and `stash --help` need no torch."""
    import importlib

    if name == "predict":  # a room that can be called
        return importlib.import_module("stash.predict")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'stash' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
