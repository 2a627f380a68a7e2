"""Send series of the past to a gateway by remote write, a day at a time, and remember how far that came.

The gateway takes them as it takes live ones: mapping, units, limits, duplicates and rollups are its own. What was sent
before adds nothing, so beginning again anywhere is right; what is remembered only saves the time.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cramjam

from secondsight.administer.history_read import History, Series
from secondsight.agent.client.connection import Connection
from secondsight.clock import Clock
from secondsight.errors import Permanent, Retryable
from secondsight.gateway.foreign.messages import remote_write

BODY_SAMPLES = 10_000
TRIES = 8
TIMEOUT_SECONDS = 60.0
ANSWER_BYTES = 1 << 20
WAIT_MAXIMUM_SECONDS = 30.0
HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
    "User-Agent": "secondsight-import",
}

Days = Mapping[Series, Sequence[tuple[int, float]]]
Progress = Callable[[int, int, int], None]
"""Is told: samples sent, samples in all, the day that is on its way."""


@dataclass(slots=True)
class Sent:
    """What became of an import.

    Attributes:
        refused: What the gateway refused for good -> how many bodies, with what it said.
    """

    samples: int = 0
    skipped: int = 0
    bodies: int = 0
    refused: dict[str, int] = field(default_factory=dict)


class Journal:
    """Remembers in a file which bodies of which content were sent."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path = path
        self._digest = digest
        self._done = self._read()

    @property
    def done(self) -> int:
        """Return how many bodies were sent, from the first on."""
        return self._done

    def note(self, done: int) -> None:
        """Remember that so many bodies were sent."""
        self._done = done
        partial = self._path.with_name(self._path.name + ".partial")
        partial.write_text(json.dumps({"digest": self._digest, "bodies": done}))
        partial.replace(self._path)

    def end(self) -> None:
        """Forget everything: the import is complete."""
        self._path.unlink(missing_ok=True)

    def _read(self) -> int:
        try:
            kept = json.loads(self._path.read_text())
            return int(kept["bodies"]) if kept["digest"] == self._digest else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0


class RemoteWriter:
    """Posts bodies to the remote write path of a gateway."""

    def __init__(self, connection: Connection, token: Callable[[], str], clock: Clock) -> None:
        self._connection = connection
        self._token = token
        self._clock = clock

    def post(self, body: bytes) -> str:
        """Send a body; return "" where it was taken, or what the gateway refused for good.

        Raises:
            Retryable: The gateway stays away or busy.
            Permanent: The token does not do.
        """
        for attempt in range(TRIES):
            headers = HEADERS | {"Authorization": f"Bearer {self._token()}"}
            try:
                answer = self._connection.request(
                    "POST",
                    "/api/v1/write",
                    headers,
                    timeout_seconds=TIMEOUT_SECONDS,
                    limit_bytes=ANSWER_BYTES,
                    body=body,
                )
            except Retryable:
                if attempt == TRIES - 1:
                    raise
            else:
                if answer.status < 300:
                    return ""
                if answer.status in (401, 403):
                    raise Permanent(f"the gateway refuses the token: {_said(answer.body)}")
                if answer.status < 500 and answer.status != 429:
                    return f"{answer.status}: {_said(answer.body)}"
            self._clock.sleep(min(2.0**attempt, WAIT_MAXIMUM_SECONDS))
        raise Retryable("the gateway stays busy; the same command goes on where this one ended")

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._connection.close()


def send_history(history: History, writer: RemoteWriter, journal: Journal, progress: Progress) -> Sent:
    """Send all of a history that was not sent before.

    Raises:
        Retryable, Permanent: As `RemoteWriter.post`; what was sent is remembered.
    """
    sent, total = Sent(), history.samples
    passed = 0
    for number, (day, count, body) in enumerate(bodies_of(history)):
        passed += count
        if number < journal.done:
            sent.skipped += count
            continue
        refused = writer.post(body)
        if refused:
            sent.refused[refused] = sent.refused.get(refused, 0) + 1
        sent.samples += count
        sent.bodies += 1
        journal.note(number + 1)
        progress(passed, total, day)
    journal.end()
    return sent


def bodies_of(history: History) -> Iterator[tuple[int, int, bytes]]:
    """Give (day, samples, body) in order of time; the same history gives the same bodies."""
    for day in sorted(history.days):
        yield from ((day, count, body) for count, body in _bodies(history.days[day]))


def _bodies(series: Days) -> Iterator[tuple[int, bytes]]:
    """Give bodies in which all series of some minutes are together, as a live sender has them."""
    rows = sorted((time_ms, name, labels, value) for (name, labels), some in series.items() for time_ms, value in some)
    for first in range(0, len(rows), BODY_SAMPLES):
        some = rows[first : first + BODY_SAMPLES]
        by_series: dict[Series, list[tuple[int, float]]] = {}
        for time_ms, name, labels, value in some:
            by_series.setdefault((name, labels), []).append((time_ms, value))
        yield len(some), encoded(by_series)


def encoded(series: Days) -> bytes:
    """Return a request of remote write 1.0."""
    request: Any = remote_write("WriteRequest")()
    for (name, labels), samples in series.items():
        message: Any = remote_write("TimeSeries")()
        for label, text in sorted([("__name__", name), *labels]):
            message.labels.add(name=_bytes(label), value=_bytes(text))
        for time_ms, value in samples:
            message.samples.add(value=value, timestamp=time_ms)
        request.timeseries.append(message.SerializeToString())
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _said(body: bytes) -> str:
    return " ".join(body[:300].decode(errors="replace").split())
