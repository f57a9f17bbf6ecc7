"""The catalog: every row has units, ranges and sources in order; users' rows stand before it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stash.errors import UsageError
from stash.hardware import catalog, topologies
from stash.hardware.catalog import Instance


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    catalog.forget()
    yield tmp_path
    catalog.forget()


def test_every_packaged_row_is_in_order() -> None:
    wrong = {one.name: catalog.problems(one) for one in catalog.packaged()}
    assert {name: words for name, words in wrong.items() if words} == {}
    assert {one.snapshot for one in catalog.packaged()} == {catalog.CURRENT, catalog.PAPER}
    assert len(catalog.instances()) > 200


def test_names_are_unique_within_a_cloud_and_snapshot() -> None:
    keys = [(one.snapshot, one.cloud, one.name) for one in catalog.packaged()]
    assert len(keys) == len(set(keys))


def test_a_machine_has_as_many_gpus_as_its_topology_and_no_more_memory_than_the_card() -> None:
    for one in catalog.packaged():
        if one.topology:
            assert topologies.find(one.topology).gpus == one.gpus, one.name
        gpu = one.accelerator
        if gpu is not None and one.gpu_memory_gib is not None:
            assert 0.8 < one.gpu_memory_gib * 2**30 / gpu.memory_bytes < 1.2, one.name


def test_table_one_of_the_paper_stands_as_printed() -> None:
    printed = {
        "p2.xlarge": 0.90,
        "p2.8xlarge": 7.20,
        "p2.16xlarge": 14.40,
        "p3.2xlarge": 3.06,
        "p3.8xlarge": 12.24,
        "p3.16xlarge": 24.48,
        "p3dn.24xlarge": 31.218,
        "p4d.24xlarge": 32.7726,
    }
    found = {one.name: one.price_usd_per_hour for one in catalog.instances(catalog.PAPER)}
    assert found == printed


def test_a_retired_machine_is_known_and_marked_although_it_has_a_price() -> None:
    one = catalog.find("p3.16xlarge")
    assert (one.status, one.price_usd_per_hour) == ("retired", 24.48)


def test_the_network_is_what_is_delivered_not_what_is_advertised() -> None:
    one = catalog.find("p3.16xlarge")
    assert one.network_gbit_per_second == 25
    assert one.network_bytes_per_second == 10e9 / 8
    assert catalog.find("p4d.24xlarge").network_bytes_per_second == 400e9 / 8


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"p3\.16xlarge"):
        catalog.find("p3.61xlarge")
    with pytest.raises(UsageError, match="paper-2022"):
        catalog.instances("1999")


def test_users_rows_replace_and_add(own_folder: Path) -> None:
    file = own_folder / "mine.csv"
    file.write_text(
        "name,gpu,gpus,vcpus,price_usd_per_hour,price_date,price_region\n"
        "p4d.24xlarge,,,,11.5,2026-11-01,my contract\n"
        "cellar,v100,2,16,,,\n"
    )
    catalog.import_rows(file)
    replaced, added = catalog.find("p4d.24xlarge"), catalog.find("own:cellar")
    assert (replaced.price_usd_per_hour, replaced.gpus) == (11.5, 8)
    assert replaced.source_price == "own file mine.csv"
    assert (added.gpu, added.gpus, added.source_specs) == (
        "v100-sxm2-16gb",
        2,
        "own file mine.csv",
    )


def refreshed(name: str, usd: float) -> None:
    one = replace(catalog.find(name), price_usd_per_hour=usd, price_date="2026-11-16")
    catalog.save_refreshed([one])


def imported(folder: Path, text: str, file_name: str = "mine.csv") -> None:
    (folder / file_name).write_text(text)
    catalog.import_rows(folder / file_name)


def test_a_refresh_of_one_cloud_leaves_earlier_ones_as_they_are() -> None:
    refreshed("p4d.24xlarge", 11.0)
    refreshed("a2-highgpu-8g", 12.0)
    found = [catalog.find(name).price_usd_per_hour for name in ("p4d.24xlarge", "a2-highgpu-8g")]
    assert found == [11.0, 12.0]


def test_an_import_keeps_its_hands_off_what_it_does_not_name(own_folder: Path) -> None:
    imported(own_folder, "name,vcpus\np4d.24xlarge,95\n")
    refreshed("p4d.24xlarge", 11.0)
    imported(own_folder, "name,memory_gib\np4d.24xlarge,1000\n")
    one = catalog.find("p4d.24xlarge")
    assert (one.vcpus, one.memory_gib, one.price_usd_per_hour) == (95, 1000, 11.0)
    assert one.price_date == "2026-11-16"


def test_a_second_import_adds_to_a_machine_of_ones_own(own_folder: Path) -> None:
    imported(own_folder, "name,gpu,gpus,vcpus\ncellar,v100,2,16\n")
    price = "name,price_usd_per_hour,price_date,price_region\ncellar,1.5,2026-11-16,here\n"
    imported(own_folder, price, "prices.csv")
    one = catalog.find("own:cellar")
    assert (one.gpu, one.gpus, one.vcpus, one.price_usd_per_hour) == ("v100-sxm2-16gb", 2, 16, 1.5)
    assert (one.source_specs, one.source_price) == ("own file mine.csv", "own file prices.csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,price\nx,1\n", "unknown columns price"),
        ("cloud\naws\n", "no column `name`"),
        ("name,gpus\nx,many\n", "line 2: gpus is 'many'"),
        ("name,gpus\nx,4\n", "no `gpu`"),
        ("name,price_usd_per_hour\nx,4\n", "without its date"),
        ("name,price_usd_per_hour\np4d.24xlarge,4\n", "add price_date, price_region"),
        ("name,price_usd_per_hour,price_date\np4d.24xlarge,4,2026\n", r"add price_region\)"),
        ("name,spot_usd_per_hour\np4d.24xlarge,4\n", "spot price .* .add spot_date, spot_region"),
        ("name,vcpus\np4d.24xlarge,-1\n", "vcpus is -1, expected 1 to"),
        ("name,memory_gib\np4d.24xlarge,0\n", "memory_gib is 0, expected 1 to"),
        ("name,memory_gib\np4d.24xlarge,1.2e12\n", "memory_gib is 1.2e"),
        ("name,price_usd_per_hour\np4d.24xlarge,0\n", "leave the price empty: it is then counted"),
        ("name,spot_usd_per_hour\np4d.24xlarge,0\n", "leave the price empty: it is then counted"),
    ],
)
def test_a_file_with_a_mistake_changes_nothing(own_folder: Path, text: str, says: str) -> None:
    file = own_folder / "mine.csv"
    file.write_text(text)
    before = catalog.instances()
    with pytest.raises(UsageError, match=says):
        catalog.import_rows(file)
    assert catalog.instances() == before
    assert not catalog.user_folder().exists()


def test_a_new_price_does_not_take_the_date_of_an_earlier_one(own_folder: Path) -> None:
    dated = "name,price_usd_per_hour,price_date,price_region\np4d.24xlarge,9,2026-11-01,here\n"
    imported(own_folder, dated)
    with pytest.raises(UsageError, match="add price_date, price_region"):
        imported(own_folder, "name,price_usd_per_hour\np4d.24xlarge,8\n", "later.csv")
    assert catalog.find("p4d.24xlarge").price_usd_per_hour == 9


def test_a_spot_price_of_ones_own_has_a_source_of_its_own(own_folder: Path) -> None:
    before = catalog.find("p4d.24xlarge")
    spot = "name,spot_usd_per_hour,spot_date,spot_region\np4d.24xlarge,5,2026-11-01,here\n"
    imported(own_folder, spot)
    one = catalog.find("p4d.24xlarge")
    assert (one.source_spot, one.source_price) == ("own file mine.csv", before.source_price)


def test_every_number_has_a_range_of_its_own() -> None:
    assert set(catalog.RANGES) == catalog.NUMBERS


def test_a_price_without_a_source_is_a_problem() -> None:
    one = replace(catalog.find("p4d.24xlarge"), source_price="")
    assert [words for words in catalog.problems(one) if "source_price" in words]


def test_a_machine_of_the_paper_has_the_network_that_it_has_today() -> None:
    for name in ("p4d.24xlarge", "p3dn.24xlarge"):
        paper, today = catalog.find(name, catalog.PAPER), catalog.find(name)
        assert paper.network_bytes_per_second == today.network_bytes_per_second
        assert paper.has_rdma and today.has_rdma


def test_a_row_without_a_source_is_a_problem() -> None:
    one = Instance(snapshot="s", cloud="c", name="n", status="gone", gpu="nope", topology="nope")
    assert len(catalog.problems(one)) == 4
