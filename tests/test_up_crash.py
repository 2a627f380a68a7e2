"""kill -9 of the platform's processes under load: what was acknowledged is there after the restart, and once."""

import random
from pathlib import Path

import pytest

from up_custody import (
    compare_with_answers,
    compare_with_ledger,
    compare_with_store,
    let_pass,
    let_windows_close,
    wait_for_all,
)
from up_rig import Platform, Sender, platform

PARTS = ("gateway", "processor", "api")


@pytest.mark.crash
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [10, pytest.param(40, marks=pytest.mark.soak)])
def test_kill_at_random_moments_loses_nothing_and_doubles_nothing(tmp_path: Path, kills: int) -> None:
    chance = random.Random(20261129)
    data = tmp_path / "data"
    with platform(data, "--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent") as running:
        sender = Sender(running)
        sender.start()
        try:
            for kill in range(kills):
                let_pass(sender, chance.randint(1, 3))
                _kill(running, chance, kill)
            let_windows_close(sender)
        finally:
            sender.stop()
        assert len(sender.acknowledged) > kills * sender.hosts * sender.gpus
        wait_for_all(running, sender)
        compare_with_answers(running, sender)
        assert running.stop() == 0, running.words()
    compare_with_store(data, sender)
    compare_with_ledger(data, sender)


def _kill(running: Platform, chance: random.Random, kill: int) -> None:
    """Kill one part, several, or everything; every part and everything come up among the first kills."""
    if kill % 5 == 4:
        running.kill()
        running.start()
    elif kill % 5 == 3:
        running.kill(*PARTS)
    else:
        running.kill(PARTS[kill % 5] if kill < 3 else chance.choice(PARTS))
