"""Look at the processors of a platform by what they show on `/metrics`: are they behind, do they wait for something.

Their addresses stand in files of `run/` in the data folder.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from secondsight.agent.client.connection import Connection
from secondsight.agent.health.words import count, plain, size, width
from secondsight.clock import Clock
from secondsight.doctor.findings import Finding, fault, ok, warning
from secondsight.errors import SecondsightError

WAIT_SECONDS = 10.0
LIMIT_BYTES = 4 << 20
LAG_SECONDS = 60.0
DELAY_SECONDS = 120.0
"""Watermarks are 10 s behind by rule; so much more means that a class of samples is not sent."""
_LINE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
Figures = Mapping[str, list[tuple[Mapping[str, str], float]]]
"""Name -> (labels, value)."""


def processors(data: Path, clock: Clock) -> Iterator[Finding]:
    """Check every processor of a data folder that says where it answers."""
    for path in sorted((data / "run").glob("*.metrics")):
        name, address = f"the {path.stem}", plain(path.read_text().strip())
        remedy = f"see {data}/logs/{path.stem}.log; it is started again"
        try:
            figures = _figures(address, clock)
        except SecondsightError as error:
            yield warning(f"{name} at {address} does not answer: {plain(str(error))}", remedy)
            continue
        yield from _of(name, figures, f"{data}/logs/{path.stem}.log")


def _figures(address: str, clock: Clock) -> Figures:
    connection = Connection(address, clock)
    try:
        headers = {"User-Agent": "secondsight-doctor"}
        answer = connection.request("GET", "/metrics", headers, timeout_seconds=WAIT_SECONDS, limit_bytes=LIMIT_BYTES)
    finally:
        connection.close()
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for name, labels, value in _LINE.findall(answer.body.decode(errors="replace")):
        found.setdefault(name, []).append((dict(_LABEL.findall(labels)), _number(value)))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _of(name: str, figures: Figures, log: str) -> Iterator[Finding]:
    if _sum(figures, "processor_waits"):
        yield fault(f"{name} waits for the store or the log and takes nothing in; nothing is lost", f"see {log}")
    yield _lag(name, figures, log)
    yield _collectors(name, figures)
    late = _sum(figures, "processor_late_rows_waiting")
    if late:
        yield ok(f"{count(round(late))} late rows wait for their windows to be loaded")
    dead, lasting = _sum(figures, "processor_dead_letters_total"), _sum(figures, "processor_findings_open")
    yield ok(
        f"{name} wrote {count(round(_sum(figures, 'processor_rows_written_total')))} rows since its start, "
        f"{count(round(dead))} dead letters; {count(round(lasting))} findings last"
    )


def _lag(name: str, figures: Figures, log: str) -> Finding:
    seconds = max((value for _, value in figures.get("processor_lag_seconds", ())), default=0.0)
    records, waiting = _sum(figures, "processor_lag_records"), _sum(figures, "processor_lag_bytes")
    amount = f" ({size(waiting)})" if waiting else ""
    partitions = len(figures.get("processor_lag_seconds", ()))
    words = f"{name} has read its log up to {width(seconds)} ago, in {partitions} partitions; "
    words += f"{count(round(records))} records{amount} are not finished"
    if seconds > LAG_SECONDS:
        return warning(words, f"it is slow or was away: see {log}; senders are asked to wait when it grows further")
    return ok(words)


def _collectors(name: str, figures: Figures) -> Finding:
    numbers = {labels.get("state", ""): round(value) for labels, value in figures.get("processor_collectors", ())}
    delays = {labels.get("quantile"): value for labels, value in figures.get("processor_watermark_delay_seconds", ())}
    words = (
        f"{name} knows {count(sum(numbers.values()))} collectors: {count(numbers.get('live', 0))} live, "
        f"{count(numbers.get('backlog', 0))} with a backlog, {count(numbers.get('idle', 0))} idle"
    )
    worst = delays.get("1", 0.0)
    if delays:
        words += f"; watermarks are {width(delays.get('0.5', 0.0))} behind, the last one {width(worst)}"
    if worst > DELAY_SECONDS:
        return warning(words, "a collector sends without moving on: `secondsight ledger` says which is incomplete")
    return ok(words)


def _sum(figures: Figures, name: str) -> float:
    return sum(value for _, value in figures.get(name, ()))
