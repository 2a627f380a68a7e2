"""Decide from what an agent last said whether it lives, and name what needs a person, with what to do about it.

Alive is an agent whose sampler looks for what is due. The driver, the gateway and single readers do not count into
that, as starting the agent anew would help none of them: they are what needs attention.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from secondsight.agent.health.words import count, plain, size, width

STALE_SECONDS = 30.0
"""A state that is older is no state; it is written every five seconds."""

SAMPLER_SECONDS = 30.0
STARTING_SECONDS = 60.0
FULL_SHARE = 0.8
CLOCK_MS = 1000
RENEWAL_SECONDS = 86_400.0
NVML_CODES = {
    4: "no permission: /dev/nvidia* cannot be opened by the agent's user",
    9: "the driver is not loaded (modprobe nvidia, or see the kernel log)",
    12: "the library was not found",
    15: "the GPU is lost: it fell off the bus or needs a reset; see the kernel log",
    16: "the GPU needs a reset",
    18: "library and kernel module are of different versions, as after an update: reboot, or load the module anew",
    19: "the GPU is in use by a driver update or debugger",
    28: "the driver ran out of memory",
    999: "an unknown error of the driver; see the kernel log for an Xid",
}
SHED_WORDS = {
    "disk_full": "disk full",
    "spool_full": "spool full",
    "floor": "too little free space",
    "retention": "too old",
    "damaged": "damaged on disk",
    "refused": "refused by the gateway",
    "unwritable": "spool not writable",
}
"""Reason of a loss -> words; see `agent.spool.losses`."""

State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Instant:
    """When and where a state is looked at.

    Attributes:
        boot_id: Of the kernel that runs now.
        is_running: Tells whether the process of a state is still there; None where that cannot be known.
    """

    now_ms: int
    monotonic_seconds: float
    boot_id: str
    is_running: Callable[[State], bool | None]

    def age_seconds(self, state: State) -> float:
        """Return how old a state is, by the clock that never steps where it is of this boot."""
        if state.get("bootId") == self.boot_id:
            return max(self.monotonic_seconds - float(state["monotonicSeconds"]), 0.0)
        return max((self.now_ms - int(state["writtenMs"])) / 1000, 0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of an agent.

    Attributes:
        line: Why it is not alive, or that it is, in one line.
        age_seconds: How long ago it said what is known; None where it never did.
        attention: What needs a person; may be empty.
    """

    is_alive: bool
    line: str
    age_seconds: float | None = None
    attention: tuple[str, ...] = ()


def judge(state: State | None, folder: str, instant: Instant) -> Verdict:
    """Return what is to be said of the agent of a spool folder."""
    if state is None:
        return Verdict(False, f"no agent has said anything in {folder}: it never ran with this spool folder")
    age_seconds = instant.age_seconds(state)
    dead = _why_ended(state, instant) or _why_silent(state, instant, age_seconds) or _why_stuck(state)
    if dead:
        return Verdict(False, dead, age_seconds)
    attention = tuple(needs_attention(state, instant.now_ms))
    words = f"{len(attention)} {'thing needs' if len(attention) == 1 else 'things need'} attention"
    line = f"agent {plain(state['collectorId'])} is alive" + (f", {words}" if attention else "")
    return Verdict(True, line, age_seconds, attention)


def _why_ended(state: State, instant: Instant) -> str:
    since = clock_time(int(state.get("endedMs") or state["writtenMs"]))
    if state.get("endedMs"):
        left = sum(one["records"] for one in state["spool"]["classes"].values())
        waits = f"; {count(left)} records wait in its spool" if left else ""
        return f"not running since {since}: it was told to stop{waits}"
    if instant.boot_id and state["bootId"] and state["bootId"] != instant.boot_id:
        return f"not running since {since}: the host was booted since then; systemctl status secondsight-agent says why"
    if instant.is_running(state) is False:
        return (
            f"not running since {since}: it was killed or crashed; journalctl -u secondsight-agent has its last words"
        )
    return ""


def _why_silent(state: State, instant: Instant, age_seconds: float) -> str:
    if age_seconds <= STALE_SECONDS:
        return ""
    if instant.is_running(state):
        return (
            f"process {state['pid']} is there but has said nothing for {width(age_seconds)}: it hangs or is stopped, "
            f"or {state['spool']['folder']} cannot be written"
        )
    since = clock_time(int(state["writtenMs"]))
    return f"not running since {since}: nothing was heard of it for {width(age_seconds)}"


def _why_stuck(state: State) -> str:
    sampler = state["samplerAgeSeconds"]
    up_seconds = (int(state["writtenMs"]) - int(state["startedMs"])) / 1000
    if (sampler is None and up_seconds > STARTING_SECONDS) or (sampler is not None and sampler > SAMPLER_SECONDS):
        return f"the sampler of process {state['pid']} has stopped; start the agent anew and keep its log"
    return ""


def needs_attention(state: State, now_ms: int) -> Iterator[str]:
    """Give what needs a person, the worst first."""
    yield from _spool(state["spool"])
    yield from _identity(state["identity"], now_ms)
    yield from _delivery(state)
    yield from _parts(state["parts"])
    for one in state["readers"]:
        yield from _reader(one)
    yield from _lost(state)
    yield from _clock(state["clock"])


def _spool(spool: State) -> Iterator[str]:
    if not spool["isOpen"]:
        yield f"samples are lost: spool {spool['folder']} cannot be opened; {plain(spool['fault']) or 'see the log'}"
    elif spool["fault"]:
        yield f"samples are lost: {plain(spool['fault'])}"
    free, floor = spool["freeBytes"], spool["floorBytes"]
    if free is not None and free < floor:
        yield (
            f"the file system of {spool['folder']} has {size(free)} free, less than the floor of {size(floor)}: the "
            "spool gives up what it holds, least important first; make room"
        )
    if spool["sizeBytes"] > FULL_SHARE * spool["limitBytes"]:
        yield (
            f"the spool holds {size(spool['sizeBytes'])} of {size(spool['limitBytes'])} at most: the least important "
            "samples go first; get delivery going, or raise spool_mib"
        )


def _identity(identity: State, now_ms: int) -> Iterator[str]:
    if identity["trouble"]:
        yield f"enrolment: {plain(identity['trouble'])}"
    elif not identity["hasToken"] and not identity["enrols"]:
        yield f"the token file {identity['tokenFile']} is not there, or may not be read: nothing can be delivered"
    renew_ms = identity["renewMs"]
    if renew_ms is not None and now_ms - renew_ms > RENEWAL_SECONDS * 1000:
        late = width((now_ms - renew_ms) / 1000)
        yield f"the token should have been renewed {late} ago; `secondsight doctor` says why it is not"


def _delivery(state: State) -> Iterator[str]:
    delivery = state["delivery"]
    if not delivery["failures"]:
        return
    last = delivery["lastAgeSeconds"]
    since = "since the agent started" if last is None else f"for {width(last)}"
    again = delivery["againSeconds"]
    soon = "" if again is None else f"; tried again in {width(again)}"
    yield (
        f"nothing was delivered {since}, samples wait in the spool: {plain(delivery['waitsFor'])} "
        f"({count(delivery['failures'])} times in a row{soon})"
    )


def _parts(parts: State) -> Iterator[str]:
    nvml = parts.get("nvml", {})
    code = nvml.get("code", 0)
    if nvml.get("isThere") and code > 0:
        yield f"the driver refuses (NVML {code}): {nvml_code(code)}"
    for uuid, failing in sorted(nvml.get("failing", {}).items()):
        yield f"GPU {uuid} fails (NVML {failing}): {nvml_code(failing)}"
    for uuid in nvml.get("silent", ()):
        yield f"GPU {uuid}: the driver does not answer for it; processes on it may hang too, see the kernel log"
    for name, facts in sorted(parts.items()):
        if facts.get("restarts") and facts.get("trouble"):
            again = f"was started again {count(facts['restarts'])} times"
            yield f"the child process for {name} {again}, last as {plain(facts['trouble'])}"


def nvml_code(code: int) -> str:
    """Return what a code of NVML means, and what to do."""
    return NVML_CODES.get(code, "see the kernel log")


def _reader(one: State) -> Iterator[str]:
    if one["isLate"] and one["readingSeconds"] is not None:
        yield f"reader {one['name']} hangs: its read takes {width(one['readingSeconds'])} so far; others go on"
    elif one["isFailing"]:
        yield f"reader {one['name']} fails ({count(one['failed'])} times): {plain(one['error'])}"


def _lost(state: State) -> Iterator[str]:
    shed = state["lost"]["shed"]
    if shed:
        said = ", ".join(
            f"{name} {count(values)} ({SHED_WORDS.get(reason, reason)})"
            for name, reasons in shed.items()
            for reason, values in reasons.items()
        )
        yield f"values were given up since the start: {said}"
    rejected = state["delivery"]["rejected"]
    if rejected:
        said = ", ".join(f"{plain(code)} {count(times)}" for code, times in sorted(rejected.items()))
        where = f"{state['spool']['folder']}/refused"
        yield f"the gateway refused data for good since the start: {said}; whole frames are in {where}"


def _clock(clock: State) -> Iterator[str]:
    offset_ms = clock["offsetMs"]
    if offset_ms is not None and abs(offset_ms) - clock["uncertaintyMs"] > CLOCK_MS:
        way = "ahead of" if offset_ms > 0 else "behind"
        yield (
            f"this host's clock is {width(abs(offset_ms) / 1000)} {way} the gateway's; times are corrected, but look "
            "after chrony or ntpd"
        )


def clock_time(time_ms: int) -> str:
    """Return an instant in UTC to the second."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
