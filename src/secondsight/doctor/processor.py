"""Look at the processors of a platform by what they show on `/metrics`: are they behind, do they wait for something.

Their addresses stand in files of `run/` in the data folder.
"""

from collections.abc import Iterator
from pathlib import Path

from secondsight.agent.health.words import count, plain, size, width
from secondsight.clock import Clock
from secondsight.doctor.figures import Figures, figures, total
from secondsight.doctor.findings import Finding, fault, ok, warning
from secondsight.errors import SecondsightError

LAG_SECONDS = 60.0
DELAY_SECONDS = 120.0
"""Watermarks are 10 s behind by rule; so much more means that a class of samples is not sent."""


def processors(data: Path, clock: Clock) -> Iterator[Finding]:
    """Check every processor of a data folder that says where it answers."""
    for path in sorted((data / "run").glob("*.metrics")):
        name, address = f"the {path.stem}", plain(path.read_text().strip())
        remedy = f"see {data}/logs/{path.stem}.log; it is started again"
        try:
            shown = figures(address, clock)
        except SecondsightError as error:
            yield warning(f"{name} at {address} does not answer: {plain(str(error))}", remedy)
            continue
        yield from _of(name, shown, f"{data}/logs/{path.stem}.log")


def _of(name: str, shown: Figures, log: str) -> Iterator[Finding]:
    if total(shown, "processor_waits"):
        yield fault(f"{name} waits for the store or the log and takes nothing in; nothing is lost", f"see {log}")
    if "processor_lag_seconds" not in shown:
        yield ok(f"{name} answers, and reads no log")
        return
    yield _lag(name, shown, log)
    yield _collectors(name, shown)
    late = total(shown, "processor_late_rows_waiting")
    if late:
        yield ok(f"{count(round(late))} late rows wait for their windows to be loaded")
    dead, lasting = total(shown, "processor_dead_letters_total"), total(shown, "processor_findings_open")
    yield ok(
        f"{name} wrote {count(round(total(shown, 'processor_rows_written_total')))} rows since its start, "
        f"{count(round(dead))} dead letters; {count(round(lasting))} findings last"
    )


def _lag(name: str, shown: Figures, log: str) -> Finding:
    seconds = max((value for _, value in shown.get("processor_lag_seconds", ())), default=0.0)
    records, waiting = total(shown, "processor_lag_records"), total(shown, "processor_lag_bytes")
    amount = f" ({size(waiting)})" if waiting else ""
    partitions = len(shown.get("processor_lag_seconds", ()))
    words = f"{name} has read its log up to {width(seconds)} ago, in {partitions} partitions; "
    words += f"{count(round(records))} records{amount} are not finished"
    if seconds > LAG_SECONDS:
        return warning(words, f"it is slow or was away: see {log}; senders are asked to wait when it grows further")
    return ok(words)


def _collectors(name: str, shown: Figures) -> Finding:
    numbers = {labels.get("state", ""): round(value) for labels, value in shown.get("processor_collectors", ())}
    delays = {labels.get("quantile"): value for labels, value in shown.get("processor_watermark_delay_seconds", ())}
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
