"""Look at a platform of `secondsight up`, by its data folder: what runs, what waits, and how much room there is.

Nothing of the platform is imported or opened: its parts are asked over HTTP, as anybody may.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from secondsight.agent.client.answers import code_and_message
from secondsight.agent.health.words import plain, size, width
from secondsight.clock import Clock
from secondsight.doctor.figures import Figures, figures, get, total
from secondsight.doctor.findings import Finding, Level, fault, ok, warning
from secondsight.doctor.live import live_window
from secondsight.doctor.processor import processors
from secondsight.doctor.spool import file_system, lock_holder
from secondsight.errors import SecondsightError

FREE_SHARE, FREE_BYTES = 0.05, 2 << 30
BACKLOG_BYTES = 256 << 20
"""So much of the log may wait without a word: minutes of a large fleet, or the past that a simulated one is given."""

LAST_WORDS = 3
TAIL_BYTES = 16 << 10
LATELY_SECONDS = 600.0
WAIT_REMEDY = "agents keep what they have and come back by themselves"
WAIT_REMEDIES = {
    "values_quota": "secondsight tenants quota --values-per-second sets how much it may send",
    "bytes_quota": "secondsight tenants quota --bytes-per-second sets how much it may send",
    "backlog": "the processor is behind: see its log; agents keep what they have",
    "disk": "make room on the disk of the log: events and states alone are taken",
}
_TROUBLE = re.compile(r"^\S+ \S+ (ERROR|CRITICAL) |^Traceback", re.MULTILINE)


def platform(data: Path, clock: Clock, proc: Path = Path("/proc")) -> Iterator[Finding]:
    """Check the platform of a data folder."""
    if not (data / "metadata.sqlite").is_file():
        yield fault(f"there is no platform in {data}", "name its folder with --data; `secondsight up` makes one")
        return
    holder = lock_holder(data / "lock", proc)
    if holder is None:
        yield fault(f"no platform runs on {data}", f"secondsight up --data {data}")
    else:
        yield ok(f"process {holder} runs the platform of {data}")
        yield from _parts(data, clock)
    yield from _disk(data)
    yield from _logs(data)


def _parts(data: Path, clock: Clock) -> Iterator[Finding]:
    if not (data / "ready").is_file():
        yield fault("the platform is not ready", f"it starts, or a part does not: see {data}/logs")
        return
    public = (data / "ready").read_text().strip()
    yield _answers("the api", public, "/healthz", clock)
    stored = _answers("the store behind the api", public, "/readyz", clock)
    yield stored
    if stored.level is not Level.OK:
        yield fault("answers are not to be had", f"the processor owns the store: see {data}/logs/processor.log")
    else:
        yield from live_window(public, clock)
    inner = _settings(data).get("api", {}).get("gateway", "")
    if inner:
        yield _answers("the gateway", str(inner), "/readyz", clock)
        yield from _gateway(data, str(inner), clock)
    yield from processors(data, clock)


def _settings(data: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads((data / "run" / "config.toml").read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return {}


def _answers(name: str, address: str, path: str, clock: Clock) -> Finding:
    try:
        answer = get(address, path, clock)
    except SecondsightError as error:
        return fault(f"{name} at {address} does not answer: {plain(str(error))}", "see its log; it is started again")
    if answer.status == 200:
        return ok(f"{name} answers at {address}")
    return fault(f"{name} at {address} answers {answer.status}: {'; '.join(map(plain, code_and_message(answer)))}")


def _gateway(data: Path, address: str, clock: Clock) -> Iterator[Finding]:
    """Tell what the gateway shows; whether it answers at all is said elsewhere."""
    try:
        shown = figures(address, clock)
    except SecondsightError:
        return
    if "gateway_backlog_bytes" in shown:
        yield _backlog(data, total(shown, "gateway_backlog_bytes"))
    yield from _tenants(shown)


def _backlog(data: Path, waiting: float) -> Finding:
    words = f"{size(waiting)} of the log wait for the processor"
    if waiting > BACKLOG_BYTES:
        remedy = f"it is behind or down: see {data}/logs/processor.log; senders are asked to wait when it grows further"
        return warning(words, remedy)
    return ok(words)


def _tenants(shown: Figures) -> Iterator[Finding]:
    """Tell which tenants were told to wait lately, or have more series than they may."""
    for labels, age in shown.get("gateway_tenant_wait_age_seconds", ()):
        tenant, reason = labels.get("tenant", ""), labels.get("reason", "")
        if age < LATELY_SECONDS:
            words = f"tenant {plain(tenant)} was asked to come back later {width(age)} ago: {plain(reason)}"
            yield warning(words, WAIT_REMEDIES.get(reason, WAIT_REMEDY))
    for labels, number in shown.get("gateway_tenant_refused_total", ()):
        tenant, code = plain(labels.get("tenant", "")), plain(labels.get("code", ""))
        words = f"{number:.0f} frames or series of tenant {tenant} were refused: {code}"
        yield warning(words, f"secondsight tenants quota --tenant {tenant} shows and sets how many it may have")


def _disk(data: Path) -> Iterator[Finding]:
    found = os.statvfs(data)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    words = f"{size(free)} of {size(total)} are free at {data} ({file_system(data) or 'unknown file system'})"
    if free < min(FREE_SHARE * total, FREE_BYTES):
        yield fault(words, "make room: the log and the store stop when the disk is full")
    else:
        yield ok(words)


def _logs(data: Path) -> Iterator[Finding]:
    for path in sorted((data / "logs").glob("*.log")):
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
            text = file.read().decode(errors="replace")
        if _TROUBLE.search(text):
            last = [line for line in text.splitlines() if line.strip()][-LAST_WORDS:]
            yield warning(f"{path} has errors; its last words: {plain(' / '.join(last))[:400]}", f"tail {path}")
