"""Links on the page: as they were probed in the same session, in the words of `stash links`."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from pages import changed, read
from profiles import profile_of
from stash.report.charts.links import links_picture
from stash.report.charts.picture import NARROW, WIDE
from stash.report.links import link_lines
from stash.report.page import page_of
from stash.results.document import Interval
from stash.results.links import AllReduce, Line, Links, LinksRun, MessageResult
from stash.results.profile import Profile
from stash.results.recording import Where


def about(value: float) -> Interval:
    return Interval(estimate=value, low=0.9 * value, high=1.1 * value)


def all_reduce(where: Where, workers: int, latency: float, bandwidth: float) -> AllReduce:
    bus = 2 * (workers - 1) / workers
    messages = []
    for size in (1 << 12, 1 << 18, 1 << 24):
        seconds = latency + size / bandwidth
        messages.append(
            MessageResult(
                bytes=size,
                seconds=about(seconds),
                bytes_per_second=about(size / seconds),
                bus_bytes_per_second=about(bus * size / seconds),
                samples_seconds=(seconds,),
            )
        )
    line = Line(
        latency_seconds=about(latency),
        bytes_per_second=about(bandwidth),
        bus_bytes_per_second=about(bus * bandwidth),
        worst_misfit_percent=1.0,
    )
    return AllReduce(where=where, nodes=2, workers=workers, messages=tuple(messages), line=line)


@pytest.fixture(scope="module")
def probed() -> Profile:
    profile = profile_of()
    links = Links(
        id="abcd0123",
        created=datetime(2026, 11, 16, tzinfo=timezone.utc),
        machine=profile.machine,
        run=LinksRun(rounds=20, measuring_seconds=30.0, stopped_because="rounds"),
        all_reduce=(all_reduce("node", 2, 1e-5, 8e9), all_reduce("between", 2, 3e-4, 1e8)),
        shared=(),
        topology=(),
        checks=(),
    )
    return changed(profile, links=links)


def test_links_are_told_and_drawn_where_they_were_probed(probed: Profile) -> None:
    page = read(page_of([probed]))
    headings = [one.text() for one in page.all("h2")]
    assert headings.index("Load over the run") + 1 == headings.index("Links")
    assert probed.links is not None
    for line in link_lines(probed.links):
        assert line in page.text()
    assert "links" in [one.attributes["data-chart"] for one in page.all("figure")]
    assert "Links" not in [one.text() for one in read(page_of([profile_of()])).all("h2")]


def test_the_title_tells_what_large_messages_get(probed: Profile) -> None:
    picture = links_picture(probed)
    assert picture is not None
    assert picture.title == (
        "Large messages travel at 8.0 GB/s inside the first node; "
        "100 MB/s between nodes, one worker of each"
    )


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_faster_link_lies_higher_and_a_larger_message_to_the_right(
    probed: Profile, width: int
) -> None:
    picture = links_picture(probed)
    assert picture is not None
    svg = read(picture.inline(width)).only("svg")
    inside = [(float(str(one.attributes["cx"])), float(str(one.attributes["cy"])))
              for one in svg.all("circle")]  # fmt: skip
    corners = [str(one.attributes["points"]).split()[0] for one in svg.all("polygon")]
    between = [tuple(float(number) for number in corner.split(",")) for corner in corners]
    assert inside == sorted(inside) and between == sorted(between)
    assert all(near[1] < far[1] for near, far in zip(inside, between, strict=True))
