"""While a gateway has no room, class P0 goes on by itself, and nothing is lost of the others."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent_fixture import FakeGateway, content_of, error_answer
from secondsight.model import Priority
from ship_rig import Rig

SECONDS = 60


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, FakeGateway())
    made.definitions.keep(content_of())
    yield made
    made.spools.close()


def classes(rig: Rig) -> list[int]:
    """The class of each row, as `Rig.produce` writes it into the values."""
    return [
        int(value) - 1
        for frame in rig.gateway.frames
        if frame.content.scalars is not None
        for value in np.ravel(frame.content.scalars.groups[0].values)
    ]


def test_p0_goes_on_while_a_gateway_is_busy_and_the_rest_follows_once_it_is_not(rig: Rig) -> None:
    rig.gateway.is_busy = True
    lags = []
    for _ in range(SECONDS):
        rig.produce(1)
        rig.shipper.step()
        waits = {member.priority: member.spool.records for member in rig.spools.members}
        lags.append(waits[Priority.P0])
    assert max(lags) == 0
    assert set(classes(rig)) == {Priority.P0}
    assert (waits[Priority.P1], waits[Priority.P2]) == (SECONDS, SECONDS)
    assert rig.shipper.delivery.waits_for.startswith("429")
    overtaking = [frame.header.live for frame in rig.gateway.frames]
    assert overtaking[0] is False  # within what a receiver waits for
    assert overtaking[-1] is True

    rig.gateway.is_busy = False
    rig.clock.move(600)
    rig.ship_until_empty()
    seen = classes(rig)
    assert [seen.count(priority) for priority in Priority] == [SECONDS] * 3
    assert rig.shipper.delivery.waits_for == ""


def test_a_gateway_that_takes_nothing_at_all_is_left_alone_for_as_long_as_it_says(rig: Rig) -> None:
    rig.produce(1)
    told = {"retry-after": "30"}
    rig.gateway.script = [error_answer(429, "overloaded", told), error_answer(429, "overloaded", told)]
    assert rig.shipper.step() == 30.5
    assert rig.gateway.urgent == [False, True]
    rig.clock.move(30.5)
    rig.ship_until_empty()
    assert rig.gateway.urgent[2] is False


def test_what_is_urgent_says_so_only_while_the_gateway_is_busy(rig: Rig) -> None:
    rig.produce(3)
    rig.ship_until_empty()
    assert not any(rig.gateway.urgent)
