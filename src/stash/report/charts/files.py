"""All charts of some profiles as files, for papers and slides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stash.report.charts import pictures_of
from stash.report.charts.overview import overview_picture
from stash.report.names import names_of
from stash.results.profile import Profile


def save_figures(profiles: Sequence[Profile], folder: Path) -> list[Path]:
    """Every chart in every format; of several profiles each in a folder of its own."""
    if len(profiles) == 1:
        return [path for one in pictures_of(profiles[0]) for path in one.save(folder)]
    names = names_of(profiles)
    overview = overview_picture(profiles, names)
    written = [] if overview is None else overview.save(folder)
    for name, profile in zip(names, profiles, strict=True):
        own = folder / name.split(" ")[0]
        written += [path for one in pictures_of(profile) for path in one.save(own)]
    return written
