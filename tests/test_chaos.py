"""Whatever is killed, cut off, paused or full, in whatever disorder a fleet is sent: the tables come out the same.

The processor owns the store, and the gateway the embedded log: to kill them is to kill these.
"""

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

import kafka_broker
from chaos_broken import FAULTS
from chaos_run import Size, run

SEED = 11
BLOWS = {"kill gateway": 2, "kill processor": 3, "kill everything": 1, "pause processor": 1, "cut": 1}
SHORT = Size(hosts=4, gpus=2, seconds=180, pace_seconds=12, blows=BLOWS)
MANY_BLOWS = {
    "kill gateway": 8,
    "kill processor": 8,
    "kill api": 2,
    "kill everything": 3,
    "pause gateway": 2,
    "pause processor": 3,
    "cut": 6,
}
LONG = Size(
    hosts=10,
    gpus=1,
    seconds=1800,
    pace_seconds=300,
    blows=MANY_BLOWS,
    patient_share=0.6,
    waits_for_the_last=True,
    patience_seconds=180,
)


def seed_of(default: int) -> int:
    return int(os.environ.get("CHAOS_SEED", default))


def any_seed() -> int:
    return seed_of(random.SystemRandom().randrange(1 << 32))


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_short_story_under_blows(tmp_path: Path) -> None:
    run(tmp_path, seed_of(SEED), SHORT)


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_half_an_hour_of_a_fleet_under_blows(tmp_path: Path) -> None:
    is_root = os.geteuid() == 0
    blows = MANY_BLOWS | ({"fill the log's disk": 2} if is_root else {})
    print(json.dumps(run(tmp_path, any_seed(), replace(LONG, blows=blows, small_disk=is_root))))


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(3600)
@pytest.mark.skipif(bool(kafka_broker.why_not()), reason=kafka_broker.why_not() or "-")
def test_half_an_hour_of_a_fleet_over_kafka(tmp_path: Path) -> None:
    blows = MANY_BLOWS | {"kill broker": 4}
    print(json.dumps(run(tmp_path, any_seed(), replace(LONG, hosts=8, blows=blows, kafka=True))))


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(3600)
def test_half_an_hour_of_a_fleet_over_a_server_as_the_store(tmp_path: Path) -> None:
    blows = MANY_BLOWS | {"kill store": 4}
    print(json.dumps(run(tmp_path, any_seed(), replace(LONG, hosts=6, blows=blows, clickhouse=True, foreign=True))))


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(900)
def test_a_short_story_with_foreign_senders_over_a_server(tmp_path: Path) -> None:
    blows = BLOWS | {"kill store": 2}
    run(
        tmp_path,
        seed_of(SEED),
        replace(SHORT, seconds=300, pace_seconds=40, blows=blows, clickhouse=True, foreign=True),
    )


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_product_is_noticed(tmp_path: Path, fault: str) -> None:
    """What the run is worth: with one fault in the product it fails, and by what the tables hold."""
    with pytest.raises(AssertionError, match="'compared'") as caught:
        run(tmp_path, seed_of(SEED), replace(SHORT, fault=fault, patience_seconds=15.0))
    print(fault, caught.value)
