"""Events of the driver become events of GPUs, once each, with what is needed to unite them with the kernel log's."""

import json
import time
from pathlib import Path

import pytest

from nvml_rig import needs_compiler, running
from secondsight.agent.counts import Counts
from secondsight.agent.kmsg.echo import WithoutEchoes
from secondsight.agent.kmsg.heard import HeardXids
from secondsight.agent.kmsg.untold import UntoldXids
from secondsight.agent.nvml.events import DriverEvents
from secondsight.wire.content import Event

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
TWO = ("host h200 2", f"gpu 0 uuid = {A}", f"gpu 1 uuid = {B}", "gpu 1 pci = 0000:3b:00.0")
START_MS = 1_700_000_000_000


def message(kind: int, data: int, time_ms: int, count: int = 1, **instances: int) -> bytes:
    told = {"uuid": A, "type": kind, "data": data, "count": count, "time_ms": time_ms}
    return json.dumps(told | instances).encode()


def is_xid(code: int) -> object:
    return lambda event: event.metric == "gpu_xid" and event.code == code


@needs_compiler
def test_an_xid_names_the_gpu_its_address_and_the_slice(tmp_path: Path) -> None:
    with running(tmp_path, *TWO) as rig:
        rig.settled(2)
        rig.machine.event(1, "xid 79")
        event = rig.event(is_xid(79))
        assert (event.entity, event.part, event.attributes["pci_bus_id"]) == (B, "", "00000000:3B:00.0")
        assert event.attributes["via"] == "nvml"
        rig.machine.event(1, "xid 94 gi 5 ci 1")
        event = rig.event(is_xid(94))
        assert event.part == "ci=1,gi=5"


@needs_compiler
def test_an_event_of_each_other_kind_is_told_by_its_type(tmp_path: Path) -> None:
    with running(tmp_path, *TWO) as rig:
        rig.settled(2)
        rig.machine.event(0, "type 0x2 data 5")
        rig.machine.event(0, "type 0x8000 data 2")
        event = rig.event(lambda event: event.code == 0x8000)
        assert (event.metric, event.attributes["data"]) == ("gpu_driver_event", "2")
        assert rig.event(lambda event: event.code == 2).attributes["data"] == "5"


@needs_compiler
def test_events_go_on_after_another_child_took_over(tmp_path: Path) -> None:
    with running(tmp_path, *TWO) as rig:
        rig.settled(2)
        rig.machine.append("init return 18", "call * return 9")
        rig.until(lambda gpus: all(cells.get("gpu_driver_unresponsive") == 1 for cells in gpus.values()))
        rig.machine.replace(*TWO)
        rig.settled(2)
        rig.machine.event(0, "xid 31")
        assert rig.event(is_xid(31)).entity == A


@needs_compiler
def test_a_storm_is_one_event_with_a_count(tmp_path: Path) -> None:
    with running(tmp_path, *TWO) as rig:
        rig.settled(2)
        lines = "\n".join(f"event {serial} gpu 0 type 0x1 data 0" for serial in range(1, 301))
        rig.machine.append(lines)
        event = rig.event(lambda event: event.attributes.get("count") is not None or event.version > 1)
        told = [one for one in rig.events if one.code == 1]
        assert {one.time_ms for one in told} == {event.time_ms}
        assert len(told) < 5


@needs_compiler
def test_what_the_kernel_log_told_is_not_told_twice(tmp_path: Path) -> None:
    heard = HeardXids()
    with running(tmp_path, *TWO) as rig:
        rig.settled(2)
        untold = UntoldXids()
        rig.reader = WithoutEchoes(rig.reader, heard, untold, rig.counts)  # type: ignore[assignment] # a reader as well
        heard.hear(B, 79, time.time_ns() // 1_000_000)
        rig.machine.event(1, "xid 79")
        rig.machine.event(1, "xid 31")
        rig.event(is_xid(31))
        assert [event.code for event in rig.events] == [31]
        assert untold.counts() == {(B, 31): 1}


def told(events: DriverEvents, messages: list[bytes], now_ms: int) -> list[Event]:
    return events.take(messages, {}, now_ms)


def test_repeats_within_a_minute_are_one_event_and_later_ones_another() -> None:
    events = DriverEvents(Counts())
    first = told(events, [message(8, 31, START_MS)], START_MS)
    assert [(event.metric, event.code, event.time_ms, event.version) for event in first] == [
        ("gpu_xid", 31, START_MS, 1)
    ]
    assert told(events, [message(8, 31, START_MS + 1000, 3)], START_MS + 1000) == []
    grown = told(events, [], START_MS + 11_000)
    assert [(event.time_ms, event.attributes["count"]) for event in grown] == [(START_MS, "4")]
    later = told(events, [message(8, 31, START_MS + 90_000)], START_MS + 90_000)
    assert [event.time_ms for event in later] == [START_MS + 90_000]


@pytest.mark.parametrize("code", [0, 513, 2**63])
def test_a_code_that_is_no_xid_is_counted(code: int) -> None:
    counts = Counts()
    assert told(DriverEvents(counts), [message(8, code, START_MS)], START_MS) == []
    assert counts.labelled("discarded") == {"out_of_range": 1}
