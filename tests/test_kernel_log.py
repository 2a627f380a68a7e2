"""The kernel log reader on logs look by look: which events there are, and that each line is counted once."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_log_site import BOOT_MS, Site
from secondsight.agent.counts import Counts
from secondsight.agent.host.reader import boot_id
from secondsight.agent.kmsg.advice import History, first_action
from secondsight.agent.kmsg.config import KernelLogConfig
from secondsight.agent.kmsg.echo import WAIT_MS, WithoutEchoes
from secondsight.agent.kmsg.findings import NVLINK5_CODES, SXid, Xid, finding_of
from secondsight.agent.kmsg.line import stated_time_ms
from secondsight.agent.kmsg.pci import Address, parse_address
from secondsight.agent.kmsg.reader import KernelLogReader, LogHost
from secondsight.agent.kmsg.records import Records
from secondsight.agent.kmsg.rules import rules
from secondsight.agent.kmsg.severity import Fatality, sxid_fatality, xid_entry, xid_severity
from secondsight.agent.kmsg.source import Taken
from secondsight.catalog.load import load_catalog
from secondsight.clock import SystemClock
from secondsight.contracts import Tick
from secondsight.errors import Rejected
from secondsight.mapping.changes import LastValues
from secondsight.model import EntityKind
from secondsight.wire.content import Content, EntityTable
from secondsight.wire.schema import make_schema

CASES = Path(__file__).parent / "cases" / "kmsg"
LOOKS = sorted(path for path in CASES.glob("*.json") if not path.name.endswith(".expected.json"))
CAPTURES = Path(__file__).parents[2] / "shared" / "corpus" / "captures" / "klog"
GPU_A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"

with_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"no captures to read: {CAPTURES} is not there")


def dated(line: str) -> str:
    """Return a line with `{form N}` replaced by the wall time of N seconds after boot."""

    def text(found: re.Match[str]) -> str:
        moment = datetime.fromtimestamp(BOOT_MS / 1000 + int(found[2]), UTC)
        local = moment.astimezone()
        forms = {
            "iso": moment.strftime("%Y-%m-%dT%H:%M:%S,250000"),
            "ctime": local.strftime("%a %b %d %H:%M:%S %Y"),
            "syslog": local.strftime("%b %e %H:%M:%S"),
            "local": local.strftime("%b %d %Y %H:%M:%S"),
        }
        return forms[found[1]]

    return re.sub(r"\{(iso|ctime|syslog|local) (\d+)\}", text, line)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.die()


def play(site: Site, look: dict[str, Any]) -> None:
    site.clock.move(look.get("move_seconds", 0))
    site.clock.step_wall(look.get("step_seconds", 0))
    if look.get("wipe"):
        site.reader.close()
        site.wipe()
        site.restart(clean=False)
    elif look.get("restart") or look.get("kill"):
        site.restart(clean="restart" in look)
    if look.get("reboot"):
        site.reboot()
    if look.get("healthy"):
        site.say_healthy()
    site.write(*(dated(line) for line in look.get("lines", ())))
    with site.manager_log.open("a") as out:
        out.writelines(dated(line) + "\n" for line in look.get("fabric_manager", ()))
    site.look()


@pytest.mark.parametrize("case", LOOKS, ids=lambda path: path.stem)
def test_log(case: Path, site: Site, request: pytest.FixtureRequest) -> None:
    told = json.loads(case.read_text())
    if told.get("boot") == 0:
        site.boot = 0
        site.restart()
    for address, uuid in told["gpus"].items():
        site.gpu(address, uuid)
    for look in told["looks"]:
        play(site, look)
    site.look()
    found = {"events": site.said(), "xids": dict(sorted(site.cells.items())), "lines": dict(sorted(site.tally.items()))}
    assert site.is_balanced
    expected = case.with_suffix(".expected.json")
    if request.config.getoption("--rewrite"):
        expected.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(expected.read_text())


@pytest.mark.parametrize(
    "form",
    [
        "%b %e %H:%M:%S.250000 host kernel: ",
        "%a %Y-%m-%d %H:%M:%S.250 UTC host kernel: ",
        "%Y-%m-%d %H:%M:%S.250000 +00:00 host kernel: ",
        "%Y-%m-%d %H:%M:%S,250 host kernel: ",
        "%Y-%m-%dT%H:%M:%S.250 host kernel: ",
        "%Y-%m-%dT%H:%M:%S.250+0000 host kernel: ",
        "%s.250000 host kernel: ",
    ],
)
def test_times_as_programs_print_them(form: str) -> None:
    moment = datetime.fromtimestamp(BOOT_MS / 1000, UTC)
    moment = moment if re.search(r"UTC|\+00", form) else moment.astimezone()
    line = moment.strftime(form) + "NVRM: Xid (PCI:0000:3b:00): 79"
    assert stated_time_ms(line, BOOT_MS + 60_000) == BOOT_MS + 250


class Gauge:
    """A reader of a gauge that holds the last Xid of one GPU."""

    costly = True

    def __init__(self, via: str = "last_value") -> None:
        self.name, self.interval_ms = "dcgm", 1000
        self._via = via
        self.xid: int | None = None
        self._values = LastValues()

    def read(self, tick_ms: int) -> Tick:
        event = self._values.see("gpu_xid", GPU_A, "", self.xid, tick_ms)
        self._values.look_done()
        if event is None:
            return Tick(())
        event = replace(event, attributes={**event.attributes, "via": self._via})
        table = EntityTable(EntityKind.GPU, "host-1", "", ())
        return Tick((Content(make_schema(EntityKind.GPU, []), table, None, events=(event,)),))

    def close(self) -> None:
        self.xid = None


def hints(gauge: WithoutEchoes, now_ms: int) -> list[int]:
    """Return the codes that a gauge's reader gives now and after its wait."""
    ticks = [gauge.read(now_ms), gauge.read(now_ms + WAIT_MS)]
    return [event.code for tick in ticks for content in tick.contents for event in content.events]


def test_same_xid_twice_is_two_events_and_the_gauge_adds_none(site: Site) -> None:
    """Case 059: the kernel log is the record, the gauge a hint."""
    site.gpu("0000:05:00.0", GPU_A)
    site.restart()
    gauge = Gauge()
    reader = WithoutEchoes(gauge, site.heard, site.untold, site.counts)
    steps = [json.loads(line) for line in (CASES / "059-same-xid-twice.jsonl").read_text().splitlines()]
    site.clock.step_wall((steps[0]["t"] - site.clock.now_ms()) / 1000)
    extra = []
    for step in steps:
        site.clock.move((step["t"] - site.clock.now_ms()) / 1000)
        if step["src"] == "kmsg":
            site.write(step["line"])
        else:
            gauge.xid = step["xid"]
            extra += hints(reader, step["t"])
        site.clock.move(-1)
        site.look()
    assert [event.attributes["pid"] for event in site.events.values()] == ["123", "456"]
    assert {event.entity for event in site.events.values()} == {GPU_A}
    assert extra == []


def test_a_hint_that_the_log_did_not_tell_is_an_event(site: Site) -> None:
    gauge = Gauge()
    reader = WithoutEchoes(gauge, site.heard, site.untold, site.counts)
    assert (reader.name, reader.interval_ms, reader.costly) == ("dcgm", 1000, True)
    gauge.xid = 31
    assert hints(reader, BOOT_MS) == [31]


def test_a_hint_waits_for_the_log(site: Site) -> None:
    gauge = Gauge()
    reader = WithoutEchoes(gauge, site.heard, site.untold, site.counts)
    gauge.xid = 31
    assert reader.read(BOOT_MS).contents[0].events == ()
    site.heard.hear(GPU_A, 31, BOOT_MS + 500)
    assert reader.read(BOOT_MS + WAIT_MS).contents == ()
    assert site.counts.get("xid_echo") == 1


@pytest.mark.parametrize(("seconds_after", "codes"), [(1, []), (59, []), (3600, [31])])
def test_an_event_of_the_library_is_the_one_of_its_time(seconds_after: int, codes: list[int], site: Site) -> None:
    gauge = Gauge(via="nvml")
    reader = WithoutEchoes(gauge, site.heard, site.untold, site.counts)
    site.heard.hear(GPU_A, 31, BOOT_MS)
    gauge.xid = 31
    assert hints(reader, BOOT_MS + seconds_after * 1000) == codes


def test_a_follower_in_the_gauge_belongs_to_what_the_log_told(site: Site) -> None:
    """The log shows 62, the gauge 45 a second later; 45 without anything else in the log stands for itself."""
    gauge = Gauge()
    reader = WithoutEchoes(gauge, site.heard, site.untold, site.counts)
    gauge.xid = 45
    assert hints(reader, BOOT_MS) == [45]
    site.heard.hear(GPU_A, 62, BOOT_MS + 100_000)
    gauge.xid = 31
    assert hints(reader, BOOT_MS + 101_000) == [31]
    gauge.xid = 45
    assert hints(reader, BOOT_MS + 102_000) == []


def test_nvlink5_lines_by_their_word(site: Site) -> None:
    """Case 061."""
    site.write((CASES / "061-nvlink5-nonfatal-not-fatal.log").read_text().rstrip("\n"))
    site.look()
    found = [
        (e.code, e.attributes["word"], e.attributes["link"], e.attributes["pci_bus_id"]) for e in site.events.values()
    ]
    assert sorted(found) == [
        (145, "Nonfatal", "13", "0018:01:00.0"),
        (149, "Fatal", "-1", "0019:01:00.0"),
        (149, "Fatal", "0", "0000:00:00.0"),
        (149, "Fatal", "1", "0009:01:00.0"),
    ]
    by_place = {event.attributes["pci_bus_id"]: event.attributes for event in site.events.values()}
    first = by_place["0018:01:00.0"]
    assert (first["pid"], first["process"], first["severity"], first["action"]) == (
        "876767",
        "ray::WorkerDict",
        "warning",
        "none",
    )
    assert by_place["0000:00:00.0"]["subcode"] == "37"


def test_a_fall_off_the_bus_in_two_forms_is_one_incident(site: Site) -> None:
    """Case 063."""
    site.write((CASES / "063-fell-off-bus-without-xid.log").read_text().rstrip("\n"))
    site.look()
    xids = [event for event in site.events.values() if event.metric == "gpu_xid"]
    assert [(event.code, event.attributes["pci_bus_id"]) for event in xids] == [(79, "0000:b3:00.0")]


@pytest.mark.parametrize(
    ("policy", "actions"),
    [
        ({94: "reboot"}, ["reboot", "reboot", "inspect", "reboot"]),
        ({}, ["restart_app", "restart_app", "restart_app", "restart_app"]),
    ],
    ids=["94 asks for a reboot here", "94 is of the application, as shipped"],
)
def test_set_healthy_cuts_the_history_of_faults(policy: dict[int, str], actions: list[str]) -> None:
    """Case 065. Its site reboots for a 94; the shipped table never does."""
    history, advice = History(), []
    for line in (CASES / "065-set-healthy-then-reboot-count.jsonl").read_text().splitlines():
        match json.loads(line)["e"]:
            case "reboot":
                history.rebooted()
            case "set_healthy":
                history.set_healthy()
            case fault:
                xid = Xid(Address(0, 1, 0), int(fault.removeprefix("xid")), "")
                advice.append(history.advise("gpu", xid.code, first_action(xid, policy)))
    assert advice == actions


@pytest.mark.parametrize("between", [["healthy"], ["reboot", "healthy", "reboot"], ["healthy", "reboot"]])
def test_reboots_count_from_the_first_fault_that_is_remembered(between: list[str]) -> None:
    history = History()
    for _ in range(3):
        history.advise("gpu", 95, "reset_gpu")
        history.rebooted()
    assert history.advise("gpu", 95, "reset_gpu") == "inspect"
    assert history.advise("other", 95, "reset_gpu") == "reset_gpu"
    assert history.advise("gpu", 48, "none") == "none"
    for step in between:
        history.set_healthy() if step == "healthy" else history.rebooted()
    assert history.advise("gpu", 95, "reset_gpu") == "reset_gpu"


def noted_rows(note: str) -> Iterator[tuple[int, str, str, str, str, str]]:
    for line in note.splitlines():
        fields = line.split("\t")
        if len(fields) == 6 and fields[0].isdigit():
            yield int(fields[0]), fields[1], fields[2], fields[3], fields[4], fields[5]


@with_captures
@pytest.mark.parametrize("capture", ["fallen_off_bus_and_followups.log", "xid_sxid_mixed_forms.log"])
def test_captured_lines(capture: str) -> None:
    lines = (CAPTURES / capture).read_text().splitlines()
    noted = list(noted_rows((CAPTURES / f"{capture}.expect.md").read_text()))
    assert len(noted) == len(lines)
    assert [row_of(number, line) for number, line in enumerate(lines, 1)] == noted


def row_of(number: int, line: str) -> tuple[int, str, str, str, str, str]:
    finding = finding_of(line)
    match finding:
        case Xid():
            place = str(finding.address).partition(".")[0]
            return number, "Xid", str(finding.code), place, finding.pid or "-", finding.process or "-"
        case SXid():
            return number, "SXid", str(finding.code), str(finding.address), "-", "-"
    return number, "-", "-", "-", "-", "-"


@with_captures
def test_captured_falls_and_followers(site: Site) -> None:
    site.clock.step_wall(-2 * 365 * 86400)  # some lines are of 2022
    site.restart()
    site.write((CAPTURES / "fallen_off_bus_and_followups.log").read_text().rstrip("\n"))
    site.look()
    xids = [event for event in site.events.values() if event.metric == "gpu_xid"]
    falls = [event for event in xids if event.code == 79]
    assert [(e.attributes["pci_bus_id"], e.attributes.get("reported")) for e in falls] == [
        ("0000:b3:00.0", "without Xid"),
        ("0000:09:00.0", None),
    ]
    assert falls[1].entity == "GPU-00000000-0000-0000-0000-000000000001"
    timeouts = [event for event in xids if event.code == 119]
    assert [event.attributes["count"] for event in timeouts] == ["2"]
    followers = [event for event in xids if event.code == 45]
    assert sorted(event.attributes["caused_by"] for event in followers) == ["145", "145", "149"]
    assert {(event.attributes["severity"], event.attributes["action"]) for event in followers} == {("info", "none")}
    assert site.is_balanced


@with_captures
def test_captured_storm_of_equal_sequences(site: Site) -> None:
    site.write((CAPTURES / "kmsg_raw_peermem.log").read_text())
    site.look()
    (event,) = site.events.values()
    assert (event.code, event.attributes["count"]) == (60, "7")
    assert site.tally == {"read": 8, "reported": 1, "collapsed": 6, "ignored": 1}


@with_captures
def test_captured_fabric_manager_log(site: Site) -> None:
    text = (CAPTURES / "fabricmanager.log").read_text()
    site.clock.step_wall(datetime(2025, 2, 28, tzinfo=UTC).timestamp() - site.clock.now_ms() / 1000)
    site.clock.move(864_000 * 2)
    site.clock.step_wall(-864_000 * 2)
    site.restart()
    site.manager_log.write_text(text)
    site.look()
    (event,) = site.events.values()
    assert (event.code, event.part, event.attributes["port"]) == (12028, "severity=nonfatal", "61")
    assert event.attributes["pci_bus_id"] == "0000:86:00.0"
    assert event.entity == "host-1/0000:86:00.0/61"
    local = datetime(2025, 2, 27, 15, 10, 2).astimezone()  # the log has no zone
    assert event.time_ms == local.timestamp() * 1000


def test_a_burst_is_bounded_per_look_and_counted(tmp_path: Path) -> None:
    site = Site(tmp_path, lines_per_look=100)
    storm = [f"4,{n},{9_000_000_000 + n},-;NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name=p, Ch {n}" for n in range(950)]
    site.write(*storm)
    sizes = []
    for _ in range(11):
        site.look()
        sizes.append(site.tally["read"])
    assert sizes == [*range(100, 901, 100), 950, 950]
    (event,) = site.events.values()
    site.clock.move(60)
    site.look()
    (event,) = site.events.values()
    assert event.attributes["count"] == "950"
    assert len(site.versions) <= 3
    assert site.is_balanced
    site.die()


def test_too_many_different_things_are_counted_as_a_flood(site: Site) -> None:
    site.write(*(f"4,{n},{9_000_000_000 + n},-;Out of memory: Killed process {n} (p)" for n in range(500)))
    site.look()
    kills = [event for event in site.events.values() if event.code == 30]
    (flood,) = [event for event in site.events.values() if event.code == 2]
    assert len(kills) + int(flood.attributes["count"]) == 500
    assert site.counts.get("discarded:log_flood") == int(flood.attributes["count"])
    assert site.is_balanced


def test_the_last_count_of_a_burst_is_told(site: Site) -> None:
    for n in range(5):
        at_us = 10_000_500_000 + n * 1_000_000
        site.write(f"4,{n},{at_us},-;NVRM: Xid (PCI:0000:3b:00): 13, pid=9, name=p, Graphics Exception {n}")
        site.look()
    assert len(site.versions) == 1
    site.clock.move(120)
    site.look()
    assert [event.attributes.get("count") for event in site.versions] == [None, "5"]


def test_xids_are_counted_from_zero_and_over_restarts(site: Site) -> None:
    site.gpu("0000:3b:00.0", GPU_A)
    site.restart()
    name = f"{GPU_A} gpu_xid_errors_total xid=31"
    site.write("4,1,9000000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name=p, Ch 1")
    site.look()
    assert site.cells == {name: 0}
    site.look()
    assert site.cells == {name: 1}
    site.restart()
    site.look()
    assert site.cells == {name: 1}


def test_a_pipe_stands_for_the_device(site: Site) -> None:
    os.mkfifo(site.log)
    site.restart()
    reading = os.open(site.log, os.O_RDWR)  # so that writing does not wait for a reader
    os.write(reading, b"4,1,9000000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name=p, Ch 1\n4,2,9000000001,-;half")
    site.look()
    assert site.tally == {"read": 1, "reported": 1}
    os.write(reading, b" a line\n")
    site.look()
    assert site.tally == {"read": 2, "reported": 1, "ignored": 1}
    os.close(reading)
    site.look()
    site.reader.close()


@pytest.mark.parametrize("how", ["rotated", "copied and truncated", "removed and made anew"])
def test_a_file_is_followed(how: str, site: Site) -> None:
    line = "[ 900{}.000000] NVRM: Xid (PCI:0000:3b:00): 31, pid={}, Ch 1"
    site.write(line.format(1, 1))
    site.look()
    site.write(line.format(2, 2))
    match how:
        case "rotated":
            site.log.rename(site.log.with_suffix(".1"))
        case "copied and truncated":
            site.look()
            site.log.write_text("")
        case _:
            site.look()
            site.log.unlink()
            site.look()
    site.write(line.format(3, 3))
    site.look()
    site.look()
    assert [event.attributes["pid"] for event in site.events.values()] == ["1", "2", "3"]
    assert site.is_balanced


def test_a_file_goes_on_where_it_was(site: Site) -> None:
    site.manager_log.write_text("")
    site.look()
    error = "detected NVSwitch fatal error {} on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33\n"
    site.manager_log.write_text(error.format(20034))
    site.look()
    site.restart()
    with site.manager_log.open("a") as out:
        out.write(error.format(23001))
    site.look()
    assert [event.code for event in site.events.values()] == [20034, 23001]


def test_a_log_that_is_not_there_or_cannot_be_read_is_no_missed_tick(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert site.look().contents == ()
    site.log.mkdir()
    site.restart()
    for _ in range(200):
        assert site.look().contents == ()
    assert site.tally == {"unreadable": 4}
    assert len([record for record in caplog.records if "kmsg" in record.getMessage()]) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot_id": 1}', '{"boot_id":"boot-1","mark":7}', "\x00" * 100])
def test_a_damaged_memory_is_as_none(text: str, site: Site, tmp_path: Path) -> None:
    site.write("4,1,9000000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name=p, Ch 1")
    site.look()
    site.restart()
    (tmp_path / "spool/kernel-log/state.json").write_text(text)
    site.restart(clean=False)
    site.look()
    assert len(site.events) == 1
    assert len(site.versions) == 2


def test_a_memory_that_cannot_be_kept_stops_nothing(site: Site, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file where a folder should be")
    site.write("4,1,9000000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name=p, Ch 1")
    for _ in range(10):
        site.look()
    site.reader.close()
    assert len(site.events) == 1
    assert site.tally["state_unsaved"] >= 1


def test_settings_that_cannot_work() -> None:
    for settings in ({"interval_ms": 10}, {"lines_per_look": 0}, {"actions": {"x": "reboot"}}):
        with pytest.raises(Rejected):
            KernelLogConfig(**settings)  # type: ignore[arg-type]


def test_the_log_of_this_machine(tmp_path: Path) -> None:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"/dev/kmsg cannot be read here: {error.strerror}")
    clock, counts = SystemClock(), Counts()
    host = LogHost("host-1", "", Path("/"), boot_id(), tmp_path / "state.json")
    reader = KernelLogReader(KernelLogConfig(lines_per_look=100_000), host, load_catalog(), clock, counts)
    tick = reader.read(clock.now_ms())
    reader.close()
    read = counts.get("kernel_log:read")
    assert read > 0
    for content in tick.contents:
        assert all(event.time_ms <= clock.now_ms() + 5000 for event in content.events)
    again = KernelLogReader(KernelLogConfig(lines_per_look=100_000), host, load_catalog(), clock, counts)
    again.read(clock.now_ms())
    again.close()
    assert counts.get("kernel_log:known") == read


def test_tables() -> None:
    assert xid_entry(79).severity == "fatal"
    assert xid_entry(7777).severity == "warning"
    assert {xid_entry(code).severity for code in NVLINK5_CODES} == {"by_word"}
    assert xid_severity(Xid(Address(0, 1, 0), 149, "cut before its word")) == "error"
    assert sxid_fatality(SXid(Address(0, 1, 0), 23005, "")) is Fatality.FATAL
    assert sxid_fatality(SXid(Address(0, 1, 0), 12026, "")) is Fatality.FATAL_IF_USED
    assert sxid_fatality(SXid(Address(0, 1, 0), 23005, "", fatal=False)) is Fatality.NONFATAL
    assert len({rule.code for rule in rules()}) == len(rules())
    severities = {rule.severity for rule in rules()} | {xid_entry(code).severity for code in range(200)}
    assert severities <= {"info", "warning", "error", "critical", "fatal", "by_word"}


@given(st.integers(0, 0xFFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
def test_every_spelling_of_an_address_is_one(domain: int, bus: int, device: int, function: int) -> None:
    address = Address(domain, bus, device, function)
    for text in (str(address), str(address).upper(), f"{domain:08X}:{bus:02X}:{device:02X}.{function}"):
        assert parse_address(text) == address


PIECES = st.sampled_from(
    [
        b"NVRM: Xid (PCI:0000:3b:00): ",
        b"31, pid=1, name=x, ",
        b"79",
        b"154, GPU recovery action changed from 0x0 (None) to 0x1 (",
        b"149, NETIR Fatal XC0 i0 Link -1 (0x",
        b"NVRM: The NVIDIA GPU 0000:b3:00.0",
        b"NVRM: fallen off the bus and is not responding",
        b"nvidia-nvswitch0: SXid (PCI:0000:86:00.0): ",
        b"20034, Fatal, Link 30 ",
        b"Data {0x1}",
        b"detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 ",
        b"4,1,9000000000,-;",
        b"4,2,9999999999999999,-;",
        b"[ 1.5] ",
        b"[Fri Feb 30 11:43:09 2024] ",
        b"Feb 29 11:43:09 x ",
        b"\\x0a\\xff",
        b"\n",
        b" ",
        b"Out of memory: Killed process 1 (",
    ]
)


@given(st.lists(st.lists(PIECES | st.binary(max_size=40), max_size=8).map(b"".join), max_size=6))
def test_no_bytes_crash_it_and_each_line_is_counted_once(
    tmp_path_factory: pytest.TempPathFactory, looks: list[bytes]
) -> None:
    site = Site(tmp_path_factory.mktemp("log"))
    lines = 0
    for data in looks:
        with site.log.open("ab") as out:
            out.write(data + b"\n")
        site.look()
        lines += data.count(b"\n") + 1
    assert site.counts.get("kernel_log:read") == lines
    assert site.is_balanced
    site.die()


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["31, pid=1, name=a, Ch", "31, pid=2, name=a, Ch", "79, fell", "45, Ch", "149, X"]),
        st.integers(0, 40),
    ),
    max_size=30,
)


@given(RECORDS, st.lists(st.sampled_from(["look", "restart", "kill", "wipe"]), max_size=6))
def test_restarts_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, int]], steps: list[str]
) -> None:
    """However it is looked at, ended, killed or wiped between: the events in the end are those of one look."""
    at_us, lines = 9_000_000_000, []
    for number, (text, gap_seconds) in enumerate(records):
        at_us += gap_seconds * 1_000_000
        lines.append(f"4,{number},{at_us},-;NVRM: Xid (PCI:0000:3b:00): {text} {number}")
    found = []
    for plan, lines_per_look in ((["look"], 1000), (steps, 4)):
        site = Site(tmp_path_factory.mktemp("log"), lines_per_look=lines_per_look)
        site.write(*lines)
        for step in plan:
            if step == "wipe":
                site.wipe()
            if step != "look":
                site.restart(clean=step == "restart")
            site.look()
        for _ in range(10):
            site.look()
        site.clock.move(4000)
        site.look()
        found.append(site.said())
        site.die()
    assert found[0] == found[1]


class Replay:
    """A source that gives lines again from some place on, as the device node does after a restart."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def take(self, maximum: int) -> Taken:
        taken, self._lines = self._lines[:maximum], self._lines[maximum:]
        return Taken(taken, gap=False, at_end=not self._lines)

    def close(self) -> None:
        self._lines = []


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.data())
def test_each_record_is_new_once(steps: list[int], data: st.DataObject) -> None:
    """Records may have equal numbers; an agent may end after any of them, and find any earlier ones again."""
    places, sequence = [], 0
    for step in steps:
        sequence += step
        places.append(sequence)
    lines = [f"6,{place},{place * 10},-;record {number}".encode() for number, place in enumerate(places)]
    ended = data.draw(st.integers(1, len(lines)))
    first = Records(Replay(lines))
    seen = first.take(ended).lines
    oldest = data.draw(st.integers(0, places.index(places[ended - 1])))
    second = Records(Replay(lines[oldest:]), first.mark)
    seen += second.take(len(lines)).lines
    assert [line.text for line in seen] == [f"record {number}" for number in range(len(lines))]


def test_what_goes_on_with_a_known_record_is_known() -> None:
    lines = [b"6,1,10,-;one", b" SUBSYSTEM=pci", b"6,2,20,-;two", b" SUBSYSTEM=pci"]
    first = Records(Replay(lines[:2]))
    first.take(10)
    batch = Records(Replay(lines), first.mark).take(10)
    assert (batch.known, [line.text for line in batch.lines]) == (2, ["two", " SUBSYSTEM=pci"])


def test_records_lost_while_nobody_read_are_counted() -> None:
    first = Records(Replay([b"6,1,10,-;one", b"6,2,20,-;two"]))
    assert first.take(10).lost == 0
    assert Records(Replay([b"6,7,70,-;seven"]), first.mark).take(10).lost == 4
