"""Fresh prices: from gpuhunt's files, refused where machines would be lost, never needed."""

from datetime import date
from pathlib import Path

import pytest

from stash.errors import UsageError
from stash.hardware import catalog, prices

TODAY = date(2026, 11, 16)
HEADER = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size\n"


def folder_of(tmp_path: Path, rows: str) -> Path:
    (tmp_path / "aws.csv").write_text(HEADER + rows)
    return tmp_path


def known(*names: str) -> list[catalog.Instance]:
    return [one for one in catalog.packaged() if one.name in names and one.snapshot == "2026-08"]


def test_a_price_is_taken_in_the_region_of_the_row(tmp_path: Path) -> None:
    rows = (
        "p4d.24xlarge,us-west-2,9.0,96,1152,8,A100,40,False,\n"
        "p4d.24xlarge,us-east-1,20.5,96,1152,8,A100,40,False,\n"
        "p4d.24xlarge,us-east-1,7.5,96,1152,8,A100,40,True,\n"
    )
    offers = prices.offers_from_folder(folder_of(tmp_path, rows), ["aws"])
    fresh = prices.refresh(known("p4d.24xlarge"), offers, ["aws"], TODAY)
    (one,) = fresh.rows
    assert (one.price_usd_per_hour, one.spot_usd_per_hour) == (20.5, 7.5)
    assert (one.price_region, one.price_date) == ("us-east-1", "2026-11-16")
    assert fresh.lost == ()


def test_machines_that_would_be_lost_are_named_and_retired_ones_are_not(tmp_path: Path) -> None:
    offers = prices.offers_from_folder(
        folder_of(tmp_path, "p4d.24xlarge,us-east-1,20.5,96,1152,8,A100,40,False,\n"), ["aws"]
    )
    rows = known("p4d.24xlarge", "p5.48xlarge", "p3.16xlarge")
    fresh = prices.refresh(rows, offers, ["aws"], TODAY)
    assert fresh.lost == ("p5.48xlarge",)
    assert "p5.48xlarge" in prices.explain_lost(fresh.lost)


def test_a_cloud_that_offers_nothing_has_lost_all_its_machines(tmp_path: Path) -> None:
    offers = prices.offers_from_folder(folder_of(tmp_path, ""), ["aws"])
    fresh = prices.refresh(known("p4d.24xlarge", "p5.48xlarge", "p3.16xlarge"), [], ["aws"], TODAY)
    assert offers == []
    assert fresh.lost == ("p4d.24xlarge", "p5.48xlarge")


def test_an_offer_for_nothing_is_no_price(tmp_path: Path) -> None:
    rows = (
        "p4d.24xlarge,us-east-1,0.0,96,1152,8,A100,40,False,\n"
        "p4d.24xlarge,us-east-1,20.5,96,1152,8,A100,40,False,\n"
    )
    offers = prices.offers_from_folder(folder_of(tmp_path, rows), ["aws"])
    (one,) = prices.refresh(known("p4d.24xlarge"), offers, ["aws"], TODAY).rows
    assert one.price_usd_per_hour == 20.5


def test_other_clouds_are_left_alone(tmp_path: Path) -> None:
    offers = prices.offers_from_folder(
        folder_of(tmp_path, "p4d.24xlarge,us-east-1,20.5,96,1152,8,A100,40,False,\n"), ["aws"]
    )
    fresh = prices.refresh(known("p4d.24xlarge", "a2-highgpu-8g"), offers, ["aws"], TODAY)
    assert [one.name for one in fresh.rows] == ["p4d.24xlarge"]
    assert fresh.lost == ()


def test_a_file_that_is_not_gpuhunts_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"aws\.csv, line 2"):
        prices.offers_from_folder(folder_of(tmp_path, "p4d.24xlarge,us-east-1\n"), ["aws"])
    with pytest.raises(UsageError, match=r"gcp\.csv"):
        prices.offers_from_folder(tmp_path, ["gcp"])
