"""The charts of a report, each described once."""

from __future__ import annotations

from stash.report.charts.blocks import blocks_picture
from stash.report.charts.iteration import iteration_picture
from stash.report.charts.links import links_picture
from stash.report.charts.machine import load_picture, rates_picture, workers_picture
from stash.report.charts.picture import Picture
from stash.report.charts.stalls import stalls_picture
from stash.results.profile import Profile

#: In the order in which a report shows them.
PICTURES = (
    iteration_picture,
    stalls_picture,
    blocks_picture,
    rates_picture,
    workers_picture,
    load_picture,
    links_picture,
)


def pictures_of(profile: Profile) -> list[Picture]:
    """Every chart for which a profile has the numbers."""
    found = [picture(profile) for picture in PICTURES]
    return [picture for picture in found if picture is not None]
