"""The canary: every tier gives its waves back, and a fault that is put into a tier is told."""

import json
from random import Random

import numpy as np
import pytest

from canary_rig import START_MS, Site
from process_rig import CATALOG
from secondsight.canary.check import FAILURES_TOLD, UNREADABLE, Checker, Stretch
from secondsight.canary.frames import Framer
from secondsight.canary.kept import load_kept
from secondsight.canary.run import Outlet
from secondsight.canary.tiers import COLD, HOT
from secondsight.canary.waves import STEPS, WAVES, expected
from secondsight.errors import Permanent, Retryable

FROM_S = START_MS // 1000 + 600
TIERS = {tier.name: tier for tier in (*HOT, *COLD)}
READ = [name for name, tier in TIERS.items() if tier.width_s <= 3600]


@pytest.fixture(scope="module")
def site(store, tmp_path_factory):
    made = Site(store, tmp_path_factory.mktemp("canary"))
    made.live(3600 + 1800)
    made.settle()
    yield made
    made.pool.close()


@pytest.mark.parametrize("wave", WAVES, ids=lambda wave: wave.name)
def test_coarse_windows_are_to_show_what_fine_ones_make(wave):
    hours, day = (expected(wave, FROM_S, FROM_S + 86_400, width_s) for width_s in (3600, 86_400))
    assert day.starts_s.tolist() == [FROM_S]
    assert day.figures["last"] == hours.figures["last"][-1:]
    if wave.metric == STEPS:
        assert all(day.figures[name] == [hours.figures[name].sum()] for name in ("increase", "resets"))
        return
    weights = hours.figures["count"]
    assert day.figures["count"] == weights.sum()
    assert day.figures["avg"] == pytest.approx((hours.figures["avg"] * weights).sum() / weights.sum())
    assert day.figures["min"] == hours.figures["min"].min()
    assert day.figures["max"] == hours.figures["max"].max()


def test_waves_are_what_their_names_say():
    minute = {wave.name: expected(wave, FROM_S, FROM_S + 60, 60).figures for wave in WAVES}
    assert minute["constant"]["avg"] == minute["constant"]["max"] == 1.0
    assert minute["ramp"]["avg"] == pytest.approx(0.0275)
    hour = {wave.name: expected(wave, FROM_S, FROM_S + 3600, 3600).figures for wave in WAVES}
    assert hour["sine"]["avg"] == pytest.approx(0, abs=1e-3)
    assert hour["counter"]["resets"] == 2
    assert hour["counter"]["increase"] == 3 * 718 + 2 * 2
    assert hour["gaps"]["count"] == 3600 - 3 * 120


@pytest.mark.parametrize("name", READ)
def test_every_tier_gives_back_what_was_sent(site, name):
    assert site.checker.look(TIERS[name], Stretch(FROM_S, FROM_S + 3600)) == []


def test_what_is_due_is_checked_once_and_its_lag_is_shown(site):
    site.checker.step(HOT[:4])
    site.checker.step(HOT[:4])
    assert site.events == []
    assert site.kept.checked["1h"] == site.kept.checked["5m"] // 3600 * 3600 == FROM_S + 3600
    assert load_kept(site.kept.path).checked == site.kept.checked
    shown = site.metrics.render()
    assert all(f'canary_lag_seconds{{tier="{name}"}}' in shown for name in ("1s", "30s", "5m", "1h"))


FAULTS = {
    "a row altered": ("1s", "sine", "canary_level + 7 AS canary_level"),
    "a window of 30 s altered": ("30s", "late", "canary_level_max + 1 AS canary_level_max"),
    "a rollup doubled": ("5m", "constant", "canary_level_sum * 2 AS canary_level_sum"),
    "an increase lost": ("1h", "counter", "canary_steps_total_increase - 1 AS canary_steps_total_increase"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_table_is_told_once_with_place_and_figures(site, fault):
    tier, wave, change = FAULTS[fault]
    time = "event_time" if tier == "1s" else "window_start"
    table = f"platform_{tier}"
    at = f"host_id = 'canary-{wave}' AND toUnixTimestamp({time}) = {FROM_S}"
    site.rig.store.query(
        f"INSERT INTO {table} SELECT * REPLACE (version + 1 AS version, {change}) FROM {table} WHERE {at}"
    )
    events = []
    kept = load_kept(site.kept.path)
    kept.checked.clear()
    checker = Checker(site.readers, kept, events.append, site.clock, site.metrics, Random(2))
    for _ in range(2 if tier == "1s" else 1):
        checker._go_on(TIERS[tier])
    (event,) = [one for one in events if one["attributes"]["series"] == wave]
    assert (event["metric"], event["severity"], event["attributes"]["table"]) == ("canary_mismatch", "critical", table)
    assert event["attributes"]["from"].startswith("2023-11-14T00:00:00")
    assert float(event["attributes"]["expected"]) != float(event["attributes"]["found"])
    assert {table, wave} <= set(event["message"].replace(",", "").split())
    assert json.dumps(event)
    assert f'canary_mismatch_total{{tier="{tier}"}}' in site.metrics.render()


def test_a_lake_file_that_is_gone_is_told(site):
    lost = [path for path in (site.folder / "lake").rglob("*.parquet") if "platform_1s" in str(path)]
    assert lost
    for path in lost:
        path.unlink()
    events = []
    checker = Checker(site.readers, load_kept(site.kept.path), events.append, site.clock, site.metrics, Random(3))
    for _ in range(FAILURES_TOLD + 1):
        checker.step([TIERS["lake_1s"]])
    (event,) = events
    assert event["code"] == UNREADABLE
    assert "platform_1s" in event["message"]


def test_an_event_that_does_not_arrive_is_raised_again(site):
    def away(_event):
        raise Retryable("gone")

    kept = load_kept(site.kept.path)
    kept.told.clear()
    Checker(site.readers, kept, away, site.clock, site.metrics, Random(2))._tell(
        TIERS["1h"], [next(iter(site.checker.look(TIERS["1h"], Stretch(FROM_S, FROM_S + 3600))))]
    )
    assert kept.told == []


def test_what_was_missed_is_sent_later_and_a_refusal_begins_a_new_run(site, tmp_path):
    bodies = []

    def deliver(body):
        if len(bodies) == 1:
            bodies.append(None)
            raise Permanent("refused")
        bodies.append(body)

    other = Site(site.rig.store, tmp_path)
    other.canary._outlet = Outlet(Framer(CATALOG, 7), deliver)
    other.clock.move(900)
    other.canary.send()
    start_s = START_MS // 1000
    assert other.kept.runs == [[start_s, start_s + 300], [start_s + 600, start_s + 900]]
    other.clock.move(7200)
    other.canary.send()
    assert other.kept.runs[-1] == [start_s + 600, start_s + 900]
    other.clock.move(10)
    other.canary.send()
    assert other.kept.runs[-1][0] == start_s + 900 + 7200 - 5
    assert np.diff(other.kept.runs).min() > 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"runs": 1}', '{"runs": [[1]], "checked": {}, "told": []}'])
def test_a_file_that_is_no_such_file_begins_anew(tmp_path, text):
    (tmp_path / "canary.json").write_text(text)
    assert load_kept(tmp_path / "canary.json").runs == []
