"""The platform with Kafka as its log: kill -9 of its processes and of the broker loses nothing and doubles nothing."""

import random
from pathlib import Path

import pytest

import kafka_broker
from kafka_broker import Broker
from up_custody import compare_with_answers, compare_with_store, let_pass, let_windows_close, wait_for_all
from up_rig import Platform, Sender, platform

PARTS = ("gateway", "processor", "broker", "everything")

pytestmark = pytest.mark.skipif(bool(kafka_broker.why_not()), reason=kafka_broker.why_not() or "-")


@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.soak)])
def test_kill_at_random_moments_loses_nothing_and_doubles_nothing(tmp_path: Path, kills: int) -> None:
    chance = random.Random(20261130)
    data = tmp_path / "data"
    (tmp_path / "broker").mkdir()
    with kafka_broker.broker(tmp_path / "broker") as broker:
        options = ("--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent", "--kafka", broker.address)
        with platform(data, *options) as running:
            sender = Sender(running)
            sender.start()
            try:
                for kill in range(kills):
                    let_pass(sender, chance.randint(1, 3))
                    _kill(running, broker, PARTS[kill % len(PARTS)])
                let_windows_close(sender)
            finally:
                sender.stop()
            assert len(sender.acknowledged) > kills * sender.hosts * sender.gpus
            wait_for_all(running, sender)
            compare_with_answers(running, sender)
            assert running.stop() == 0, running.words()
        assert not (data / "log").exists()
    compare_with_store(data, sender)


def _kill(running: Platform, broker: Broker, part: str) -> None:
    if part == "broker":
        broker.kill()
        broker.start()
    elif part == "everything":
        running.kill()
        running.start()
    else:
        running.kill(part)
