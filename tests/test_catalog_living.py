"""Catalogue files are followed while parts run: what they add is taken up, what they would change is refused."""

import threading

import pytest

from secondsight.catalog.living import CatalogFiles, Follower, StopOrChange, following, living
from secondsight.catalog.load import load_catalog
from secondsight.clock import ManualClock
from secondsight.errors import Rejected

LINE = (
    'gpu_site_pump_speed = {kind="gpu", unit="1", type="gauge", rollup="distribution", priority=2, dtype="u16", '
    'resolution=1e-4, min=0, max=1, description="Speed of the pump."}\n'
)
OTHER = LINE.replace("gpu_site_pump_speed", "gpu_site_valve_speed")
CHANGES = {
    "unit": ('unit="1"', 'unit="%"'),
    "rollup": ('rollup="distribution"', 'rollup="level"'),
    "type": ('type="gauge", rollup="distribution"', 'type="state", rollup="state", values={0="off", 1="on"}'),
    "dtype": ('dtype="u16"', 'dtype="u32"'),
    "resolution": ("resolution=1e-4", "resolution=1e-3"),
    "kind": ('kind="gpu"', 'kind="node"'),
    "labels": ("priority=2", 'priority=2, labels=["loop"], parts_maximum=4'),
}


@pytest.fixture
def site(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(LINE)
    return path


def test_a_new_line_is_taken_up_and_words_may_change(site, tmp_path):
    files = CatalogFiles([site], tmp_path)
    assert not files.look()
    site.write_text(LINE.replace("Speed", "Turns") + OTHER)
    assert files.look()
    assert files.catalog.get("gpu_site_pump_speed").description.startswith("Turns")
    assert "gpu_site_valve_speed" in files.catalog
    assert not files.look()


@pytest.mark.parametrize("change", CHANGES)
def test_another_meaning_is_refused_at_run_time_and_over_a_restart(site, tmp_path, change, caplog):
    files = CatalogFiles([site], tmp_path)
    site.write_text(LINE.replace(*CHANGES[change]))
    assert not files.look()
    assert "gpu_site_pump_speed means something else than before" in caplog.text
    assert "add a metric of another name" in caplog.text
    assert files.catalog.get("gpu_site_pump_speed").unit == "1"
    with pytest.raises(Rejected) as caught:
        CatalogFiles([site], tmp_path)
    assert caught.value.code == "metric_changed"
    site.write_text(LINE)
    assert CatalogFiles([site], tmp_path).catalog == files.catalog


def test_a_metric_that_left_the_files_keeps_its_meaning(site, tmp_path, caplog):
    files = CatalogFiles([site], tmp_path)
    site.write_text("")
    assert not files.look()
    assert "metric_gone" in caplog.text
    assert "gpu_site_pump_speed" not in CatalogFiles([site], tmp_path).catalog
    site.write_text(LINE.replace(*CHANGES["unit"]))
    with pytest.raises(Rejected):
        CatalogFiles([site], tmp_path)


@pytest.mark.parametrize("text", ["gpu_a = {", "gpu_power_watts = {}", "\xff\xfe"])
def test_files_that_are_wrong_change_nothing(site, tmp_path, text, caplog):
    files = CatalogFiles([site], tmp_path)
    before = files.catalog
    site.write_bytes(text.encode("latin-1"))
    assert not files.look()
    assert files.catalog is before
    assert caplog.text.count("not taken up") == 1
    assert not files.look()
    assert caplog.text.count("not taken up") == 1
    site.unlink()
    assert not files.look()
    site.write_text(LINE + OTHER)
    assert files.look()


def test_a_catalogue_is_renewed_in_place_after_others_are_ready(site):
    clock, renewed = ManualClock(), []
    files = CatalogFiles([site])
    catalog = living(files.catalog)
    assert catalog.metrics == files.catalog.metrics
    follower = Follower(files, catalog, clock, lambda: renewed.append(1), 15)
    site.write_text(LINE + OTHER)
    assert not follower.step()
    clock.move(3)
    assert not follower.step()
    assert "gpu_site_valve_speed" not in catalog
    clock.move(15)
    assert follower.step()
    assert renewed == [1]
    assert catalog.resolve("gpu_site_valve_speed") in catalog.scalars(catalog.get("gpu_site_valve_speed").kind)
    assert not follower.step()


def test_a_part_goes_on_anew_with_each_later_catalogue(site):
    clock, stop, seen = ManualClock(), threading.Event(), []
    files = CatalogFiles([site])

    def run(catalog, until):
        seen.append(len(catalog.metrics))
        if len(seen) == 1:
            site.write_text(LINE + OTHER)
        else:
            stop.set()
        clock.move(3)
        assert until.wait(0)

    following(files, clock, stop, run)
    shipped = len(load_catalog().metrics)
    assert seen == [shipped + 1, shipped + 2]


def test_an_end_is_no_change(site):
    clock, stop = ManualClock(), threading.Event()
    until = StopOrChange(stop, CatalogFiles([site]), clock)
    assert not until.is_set()
    until.set()
    assert until.is_set()
    assert until.wait()
    assert not stop.is_set()
