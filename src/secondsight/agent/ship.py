"""Take spooled frames to a gateway, in order, until it has answered for every one.

A record leaves the spool when the gateway made it durable (200), or refused it for good: then it is kept aside and
counted, and what stands behind it moves on. Everything else is tried again, later and later, for ever: the gateway away
or busy (5xx, 429), this agent not allowed (401, 403), an address that is no gateway.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from secondsight.agent.aside import Aside
from secondsight.agent.batch import Outgoing, Unreadable, outgoing
from secondsight.agent.connection import Answer
from secondsight.agent.counts import Counts
from secondsight.agent.offset import ClockOffset, Exchange
from secondsight.agent.spool import Spool, SpoolRecord
from secondsight.agent.threads import name_thread
from secondsight.agent.transport import Transport
from secondsight.clock import Clock
from secondsight.errors import Rejected, Retryable
from secondsight.wire.schema import Definitions

logger = logging.getLogger(__name__)

REFUSED_FOR_GOOD = frozenset({400, 413, 415, 422})
CONFIRMED_MAXIMUM = 100_000
EXPIRE_EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ShipConfig:
    """How a shipper behaves.

    Attributes:
        batch_seconds: Records may wait so long for company.
        batch_records, batch_bytes: A batch is full at either; a full one does not wait.
        backoff_seconds, backoff_maximum_seconds: First and greatest bound of the random wait after a failure.
        horizon_seconds: Records older than this are not worth sending: the gateway would refuse them.
    """

    batch_seconds: float = 5.0
    batch_records: int = 2000
    batch_bytes: int = 1 << 20
    backoff_seconds: float = 1.0
    backoff_maximum_seconds: float = 60.0
    horizon_seconds: float = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class ShipParts:
    """What a shipper works with; `random` gives numbers in [0, 1)."""

    spool: Spool
    transport: Transport
    definitions: Definitions
    aside: Aside
    offset: ClockOffset
    counts: Counts
    random: Callable[[], float]


class Shipper:
    """Ships one spool. One thread calls `step` or `run`; `stop` of a run is the event that it was given."""

    def __init__(self, parts: ShipParts, clock: Clock, config: ShipConfig | None = None) -> None:
        self._parts = parts
        self._clock = clock
        self._config = config or ShipConfig()
        self._confirmed: set[tuple[bytes, bytes]] = set()
        self._refused: set[int] = set()
        self._failures = 0
        self._codes_logged: set[str] = set()
        self._expire_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Ship until `stop` is set."""
        name_thread()
        while not stop.is_set():
            stop.wait(self._guarded_step())

    def _guarded_step(self) -> float:
        """Take a step; a fault of this program must not end delivery for ever, so it is logged and backed off from."""
        try:
            return self.step()
        except Exception:
            logger.exception("shipping failed on a fault of this program")
            self._parts.counts.add("ship_broken")
            return self._config.backoff_maximum_seconds

    def close(self) -> None:
        """Close the transport; may be called twice."""
        self._parts.transport.close()

    def step(self, *, flush: bool = False) -> float:
        """Ship what is due, once; return for how many seconds there is nothing to do. Never raises on purpose.

        Args:
            flush: Ship what is there without waiting for more.
        """
        try:
            self._expire()
            records = self._parts.spool.read(self._config.batch_records, self._config.batch_bytes)
            wait_seconds = 0.0 if flush else self._wait_seconds(records)
            if wait_seconds > 0:
                return wait_seconds
            if records:
                self._ship(records)
            self._failures = 0
        except Retryable as error:
            return self._back_off(error)
        return 0.0 if self._parts.spool.records else self._config.batch_seconds

    def drain(self, seconds: float) -> bool:
        """Ship all that is there, for at most about `seconds`; False if something is left. Gives up on a failure."""
        end = self._clock.monotonic_seconds() + seconds
        while self._parts.spool.records and self._clock.monotonic_seconds() < end:
            if self.step(flush=True) > 0 and self._failures:
                return False
        return not self._parts.spool.records

    def _expire(self) -> None:
        now = self._clock.monotonic_seconds()
        if now >= self._expire_at:
            self._expire_at = now + EXPIRE_EVERY_SECONDS
            self._parts.spool.expire(self._clock.now_ms() - round(self._config.horizon_seconds * 1000))

    def _wait_seconds(self, records: Sequence[SpoolRecord]) -> float:
        """Return how long a batch that is not full may still wait."""
        if not records:
            return self._config.batch_seconds
        size_bytes = sum(len(record.payload) for record in records)
        if len(records) >= self._config.batch_records or self._parts.spool.records > len(records):
            return 0.0
        age_seconds = (self._clock.now_ms() - records[0].append_time_ms) / 1000
        if size_bytes >= self._config.batch_bytes // 2 or age_seconds < 0:
            return 0.0
        return max(self._config.batch_seconds - age_seconds, 0.0)

    def _back_off(self, error: Retryable) -> float:
        bound = min(self._config.backoff_seconds * float(2**self._failures), self._config.backoff_maximum_seconds)
        self._failures = min(self._failures + 1, 30)
        self._parts.counts.add("ship_failed")
        wait_seconds = max(bound * self._parts.random(), error.retry_after_seconds or 0.0, 0.05)
        level = logging.WARNING if self._failures in (1, 10, 30) else logging.DEBUG
        logger.log(level, "frames wait %.1f s: %s", wait_seconds, error)
        return wait_seconds

    def _ship(self, records: Sequence[SpoolRecord]) -> None:
        frames, unreadable = self._frames([r for r in records if r.sequence not in self._refused])
        for item in unreadable:
            self._set_aside(item.record, item.code)
        self._deliver(frames)
        self._parts.spool.ack(records[-1].sequence)
        self._refused.clear()
        self._parts.counts.add("shipped_records", len(records))

    def _frames(self, records: Sequence[SpoolRecord]) -> tuple[list[Outgoing], list[Unreadable]]:
        return outgoing(records, self._parts.spool.spool_id, self._parts.definitions)

    def _deliver(self, frames: list[Outgoing]) -> None:
        """Get an answer for every frame; what is refused as a whole is divided until the culprit stands alone."""
        if not frames:
            return
        try:
            self._post(frames)
        except Rejected as error:
            halves = self._halves(frames)
            if halves is None:
                self._set_aside(frames[0].records[0], error.code)
                return
            for half in halves:
                self._deliver(half)

    def _halves(self, frames: list[Outgoing]) -> tuple[list[Outgoing], list[Outgoing]] | None:
        if len(frames) > 1:
            return frames[: len(frames) // 2], frames[len(frames) // 2 :]
        records = frames[0].records
        if len(records) == 1:
            return None
        middle = len(records) // 2
        return self._frames(records[:middle])[0], self._frames(records[middle:])[0]

    def _post(self, frames: list[Outgoing]) -> None:
        """Send frames as one body.

        Raises:
            Retryable: Send them again later.
            Rejected: The body as a whole was refused for good, or a frame cannot be written.
        """
        inline = [frame.definitions not in self._confirmed for frame in frames]
        answer = self._exchange(frames, inline)
        if answer.status == 424:
            self._confirmed.clear()
            answer = self._exchange(frames, [True] * len(frames))
        if answer.status == 200 and "accepted" in _json_of(answer):
            self._note_accepted(frames, answer)
        elif answer.status in REFUSED_FOR_GOOD:
            raise Rejected(*_error_of(answer))
        else:
            code, message = _error_of(answer)
            raise Retryable(f"{answer.status} {code}: {message}", retry_after_seconds=_retry_after(answer))

    def _exchange(self, frames: list[Outgoing], inline: list[bool]) -> Answer:
        body = b"".join(frame.encode(inline=whole) for frame, whole in zip(frames, inline, strict=True))
        sent_ms = self._clock.now_ms()
        answer = self._parts.transport.post(body)
        answered_ms = self._clock.now_ms()
        self._parts.counts.add("shipped_bytes", len(body))
        told = _json_of(answer)
        if answer.status == 200 and isinstance(told.get("receivedMs"), int) and isinstance(told.get("sentMs"), int):
            exchange = Exchange(sent_ms, told["receivedMs"], told["sentMs"], answered_ms)
            self._parts.offset.learn(exchange, self._clock.monotonic_seconds())
        return answer

    def _note_accepted(self, frames: list[Outgoing], answer: Answer) -> None:
        if len(self._confirmed) > CONFIRMED_MAXIMUM:
            self._confirmed.clear()
        self._confirmed.update(frame.definitions for frame in frames)
        for item in _json_of(answer).get("rejected", ()):
            code = str(item.get("code", "unknown"))
            self._parts.counts.add(f"rejected:{code}")
            index = item.get("index")
            host = frames[index].stamp.host_id if isinstance(index, int) and index < len(frames) else ""
            self._log_once(code, f"{item.get('message', '')} (host {host})")

    def _set_aside(self, record: SpoolRecord, code: str) -> None:
        self._parts.aside.keep(record.payload, record.sequence, code)
        self._refused.add(record.sequence)
        self._parts.counts.add(f"rejected:{code}")
        self._log_once(code, f"record {record.sequence} is kept aside")

    def _log_once(self, code: str, message: str) -> None:
        if code not in self._codes_logged:
            self._codes_logged.add(code)
            logger.warning("gateway refused data: %s: %s", code, message)


def _json_of(answer: Answer) -> dict[str, Any]:
    try:
        told = json.loads(answer.body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _error_of(answer: Answer) -> tuple[str, str]:
    error = _json_of(answer).get("error")
    if not isinstance(error, dict):
        return f"http_{answer.status}", "no reason was given"
    hint = error.get("hint")
    message = str(error.get("message", "")) + (f" ({hint})" if hint else "")
    return str(error.get("code", f"http_{answer.status}")), message


def _retry_after(answer: Answer) -> float | None:
    try:
        return float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None
