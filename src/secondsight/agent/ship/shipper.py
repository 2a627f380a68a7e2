"""Take spooled frames to a gateway until it has answered for every one.

A record leaves the spool when the gateway made it durable (200), or refused it for good: then it is kept aside,
declared and counted, and what stands behind it moves on. Everything else is tried again, later and later, for ever: the
gateway away or busy (5xx, 429), this agent not allowed (401, 403), an address that is no gateway. While a gateway is
busy, class P0 goes on by itself for as long as the gateway takes it.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from secondsight.agent.client.answers import CODE_CHARACTERS, json_of, shown
from secondsight.agent.client.connection import Answer
from secondsight.agent.client.offset import ClockOffset, Exchange
from secondsight.agent.client.pace import Backoff, BatchBytes
from secondsight.agent.client.transport import Transport
from secondsight.agent.counts import Counts
from secondsight.agent.ship.aside import Aside
from secondsight.agent.ship.batch import Outgoing, outgoing
from secondsight.agent.ship.declare import declaration
from secondsight.agent.ship.lanes import LaneConfig, Lanes, Turn
from secondsight.agent.ship.verdict import Busy, is_time, require_accepted
from secondsight.agent.spool.classes import Spools
from secondsight.agent.spool.custody import ClassSpool
from secondsight.agent.spool.losses import LossReason
from secondsight.agent.spool.reading import SpoolRecord
from secondsight.agent.threads import name_thread
from secondsight.clock import Clock
from secondsight.errors import Rejected, Retryable
from secondsight.wire.schema import Definitions

logger = logging.getLogger(__name__)

CONFIRMED_MAXIMUM = 100_000
CODES_MAXIMUM = 100
TEND_EVERY_SECONDS = 60.0
REPORT_EVERY_SECONDS = 30.0
REPORT_AGAIN_SECONDS = 600.0
"""Declarations that a gateway refused for good are tried again after so long: another gateway may know them."""

LOOK_SECONDS = 1.0
"""How often a wait after a failure looks whether it may end."""

REST_SHARE = 9.0
"""After a batch of a backlog, rest so many times as long as it took to build: a tenth of one core at most."""


@dataclass(frozen=True, slots=True)
class ShipConfig:
    """How a shipper behaves.

    Attributes:
        batch_seconds: Records may wait so long for company.
        batch_records, batch_bytes: A batch is full at either; a full one does not wait.
        least_bytes: Of a batch after a failure; it grows again with success.
        backoff_seconds, backoff_maximum_seconds: First and greatest bound of the random wait after a failure.
        backlog_seconds: Age of the oldest record from which the newest have a lane of their own.
    """

    batch_seconds: float = 5.0
    batch_records: int = 2000
    batch_bytes: int = 1 << 20
    least_bytes: int = 64 << 10
    backoff_seconds: float = 1.0
    backoff_maximum_seconds: float = 60.0
    backlog_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class ShipParts:
    """What a shipper works with.

    Attributes:
        random: Gives numbers in [0, 1).
        write_due: Writes what was held for company until it is due, and returns for how many seconds nothing more is;
            records need not wait then. None where nothing is held.
    """

    spools: Spools
    transport: Transport
    definitions: Definitions
    aside: Aside
    offset: ClockOffset
    counts: Counts
    random: Callable[[], float]
    collector_id: str
    host_id: str
    write_due: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """How delivery goes; instants are monotonic seconds.

    Attributes:
        succeeded: When a gateway last answered for something; None if never.
        failures: In a row, since then.
        waits_for: What the gateway said, or why it could not be asked; "" while all goes well.
        again: When it is tried again; None while all goes well.
        held_by: Code by which a gateway asks to wait with all but class P0; "" where it does not.
    """

    succeeded: float | None = None
    failures: int = 0
    waits_for: str = ""
    again: float | None = None
    held_by: str = ""


@dataclass(frozen=True, slots=True)
class _Parcel:
    """One frame with the spool that its records are of."""

    member: ClassSpool
    frame: Outgoing


class Shipper:
    """Ships the spools of one agent. One thread calls `step` or `run`; `stop` of a run is the event it was given."""

    def __init__(self, parts: ShipParts, clock: Clock, config: ShipConfig | None = None) -> None:
        self._parts = parts
        self._clock = clock
        self._config = config or ShipConfig()
        chosen = self._config
        company_seconds = 0.0 if parts.write_due else chosen.batch_seconds
        self._lanes = Lanes(
            parts.spools, clock, LaneConfig(company_seconds, chosen.batch_records, chosen.backlog_seconds)
        )
        self._backoff = Backoff(chosen.backoff_seconds, chosen.backoff_maximum_seconds, parts.random)
        self._batch_bytes = BatchBytes(chosen.least_bytes, chosen.batch_bytes)
        self._confirmed: set[tuple[bytes, bytes]] = set()
        self._codes_logged: set[str] = set()
        self._tend_at = 0.0
        self._report_at = 0.0
        self._delivery = Delivery()
        self._held_until = 0.0
        self._hurry = threading.Event()

    @property
    def delivery(self) -> Delivery:
        """Return how delivery goes; for any thread."""
        return self._delivery

    def run(self, stop: threading.Event) -> None:
        """Ship until `stop` is set."""
        name_thread()
        while not stop.is_set():
            self._wait(stop, self._guarded_step())

    def hurry(self) -> None:
        """Have what waits after failures tried again soon, as their cause may be gone; for any thread."""
        self._hurry.set()

    def _wait(self, stop: threading.Event, seconds: float) -> None:
        """Wait until `stop` is set, or for some seconds; after failures only until told to hurry."""
        if not self._backoff.failures:
            self._hurry.clear()
            stop.wait(seconds)
            return
        end = self._clock.monotonic_seconds() + seconds
        while not stop.wait(min(max(end - self._clock.monotonic_seconds(), 0.0), LOOK_SECONDS)):
            if self._hurry.is_set():
                self._hurry.clear()
                self._backoff.reset()
                self._held_until = 0.0
                return
            if self._clock.monotonic_seconds() >= end:
                return

    def close(self) -> None:
        """Close the transport; may be called twice."""
        self._parts.transport.close()

    def step(self, *, flush: bool = False) -> float:
        """Ship what is due, once; return for how many seconds there is nothing to do. Never raises on purpose.

        Args:
            flush: Ship what is there without waiting for more, or resting.
        """
        is_held = self._clock.monotonic_seconds() < self._held_until
        try:
            self._tend()
            return self._step_urgent(flush=flush) if is_held else self._step(flush=flush)
        except Busy as error:
            now = self._clock.monotonic_seconds()
            if is_held:
                self._parts.counts.add("ship_failed")
                held_seconds, self._held_until = self._held_until - now, 0.0
                return max(held_seconds, error.retry_after_seconds or 0.0)
            self._held_until = now + self._back_off(error)
            return self.step(flush=flush)
        except Retryable as error:
            self._held_until = 0.0
            return self._back_off(error)

    def _step(self, *, flush: bool) -> float:
        due_seconds = self._due_seconds()
        turn = self._lanes.next(self._batch_bytes.now)
        if turn.wait_seconds > 0 and not flush:
            return turn.wait_seconds
        rest_seconds = self._ship(turn) if turn.loads else 0.0
        self._report()
        self._note_success(has_sent=bool(turn.loads))
        if self._parts.spools.records:
            return 0.0 if flush else rest_seconds
        return due_seconds

    def _step_urgent(self, *, flush: bool) -> float:
        """Ship what is due of class P0, while the gateway has no room for others."""
        due_seconds = self._due_seconds()
        turn = self._lanes.next_urgent(self._batch_bytes.now)
        if turn.loads and (flush or turn.wait_seconds <= 0):
            self._ship(turn, urgent=True)
            self._report(urgent=True)
        pause_seconds = turn.wait_seconds or max(due_seconds, LOOK_SECONDS)
        return min(pause_seconds, max(self._held_until - self._clock.monotonic_seconds(), 0.0))

    def _due_seconds(self) -> float:
        return self._parts.write_due() if self._parts.write_due else self._config.batch_seconds

    def drain(self, seconds: float) -> bool:
        """Ship all that is there, for at most about `seconds`; False if something is left. Gives up on a failure."""
        end = self._clock.monotonic_seconds() + seconds
        while self._parts.spools.records and self._clock.monotonic_seconds() < end:
            if self.step(flush=True) > 0 and self._backoff.failures:
                return False
        with suppress(Retryable):
            self._report_at = 0.0
            self._report()
        return not self._parts.spools.records

    def _guarded_step(self) -> float:
        """Take a step; a fault of this program must not end delivery for ever, so it is logged and backed off from."""
        try:
            return self.step()
        except Exception as error:
            logger.exception("shipping failed on a fault of this program")
            self._parts.counts.add("ship_broken")
            wait_seconds = self._config.backoff_maximum_seconds
            self._note_failure(f"a fault of this program, see its log: {error!r}", wait_seconds)
            return wait_seconds

    def _tend(self) -> None:
        now = self._clock.monotonic_seconds()
        if now >= self._tend_at:
            self._tend_at = now + TEND_EVERY_SECONDS
            self._parts.spools.tend()

    def _note_success(self, *, has_sent: bool) -> None:
        self._backoff.reset()
        if has_sent:
            self._delivery = Delivery(self._clock.monotonic_seconds())
        elif self._delivery.failures:
            self._delivery = Delivery(self._delivery.succeeded)

    def _note_failure(self, why: str, wait_seconds: float, held_by: str = "") -> None:
        before, again = self._delivery, self._clock.monotonic_seconds() + wait_seconds
        self._delivery = Delivery(before.succeeded, before.failures + 1, why, again, held_by)

    def _back_off(self, error: Retryable) -> float:
        self._batch_bytes.failed()
        self._parts.counts.add("ship_failed")
        wait_seconds = self._backoff.next_seconds(error.retry_after_seconds)
        self._note_failure(str(error), wait_seconds, error.code if isinstance(error, Busy) else "")
        level = logging.WARNING if self._backoff.failures in (1, 10, 30) else logging.DEBUG
        logger.log(level, "frames wait %.1f s: %s", wait_seconds, error)
        return wait_seconds

    def _ship(self, turn: Turn, *, urgent: bool = False) -> float:
        """Deliver a turn and return how long to rest after it."""
        began = self._clock.monotonic_seconds()
        parcels: list[_Parcel] = []
        for load in turn.loads:
            parcels += self._parcels(load.member, load.records, is_live=load.is_live)
        built = self._clock.monotonic_seconds()
        self._deliver(parcels, urgent=urgent)
        self._batch_bytes.succeeded(self._clock.monotonic_seconds() - built)
        self._lanes.delivered(turn)
        self._parts.counts.add("shipped_records", sum(len(load.records) for load in turn.loads))
        return REST_SHARE * (built - began) if turn.is_backlog else 0.0

    def _parcels(self, member: ClassSpool, records: Sequence[SpoolRecord], *, is_live: bool) -> list[_Parcel]:
        frames, unreadable = outgoing(records, member.spool.spool_id, self._parts.definitions, live=is_live)
        for item in unreadable:
            self._set_aside(member, item.record, item.code)
        return [_Parcel(member, frame) for frame in frames]

    def _deliver(self, parcels: list[_Parcel], *, urgent: bool) -> None:
        """Get an answer for every frame; what is refused as a whole is divided until the culprit stands alone."""
        if not parcels:
            return
        try:
            self._post([parcel.frame for parcel in parcels], urgent=urgent)
        except Rejected as error:
            halves = self._halves(parcels)
            if halves is None:
                self._set_aside(parcels[0].member, parcels[0].frame.records[0], error.code)
                return
            for half in halves:
                self._deliver(half, urgent=urgent)

    def _halves(self, parcels: list[_Parcel]) -> tuple[list[_Parcel], list[_Parcel]] | None:
        if len(parcels) > 1:
            return parcels[: len(parcels) // 2], parcels[len(parcels) // 2 :]
        member, frame = parcels[0].member, parcels[0].frame
        if len(frame.records) == 1:
            return None
        middle = len(frame.records) // 2
        first, second = (
            self._parcels(member, records, is_live=frame.live)
            for records in (frame.records[:middle], frame.records[middle:])
        )
        return first, second

    def _post(self, frames: list[Outgoing], *, urgent: bool) -> None:
        """Send frames as one body.

        Raises:
            Retryable: Send them again later.
            Rejected: The body as a whole was refused for good, or a frame cannot be written.
        """
        inline = [frame.definitions not in self._confirmed for frame in frames]
        answer = self._exchange(frames, inline, urgent=urgent)
        if answer.status == 424:
            self._confirmed.clear()
            answer = self._exchange(frames, [True] * len(frames), urgent=urgent)
        require_accepted(answer)
        self._note_accepted(frames, answer)

    def _exchange(self, frames: list[Outgoing], inline: list[bool], *, urgent: bool) -> Answer:
        bodies = [frame.encode(inline=whole) for frame, whole in zip(frames, inline, strict=True)]
        return self._send(b"".join(bodies), urgent=urgent)

    def _send(self, body: bytes, *, urgent: bool) -> Answer:
        sent_ms = self._clock.now_ms()
        answer = self._parts.transport.post(body, urgent=urgent)
        answered_ms = self._clock.now_ms()
        self._parts.counts.add("shipped_bytes", len(body))
        self._parts.counts.add("ship_requests")
        told = json_of(answer)
        received_ms, replied_ms = told.get("receivedMs"), told.get("sentMs")
        if answer.status == 200 and is_time(received_ms) and is_time(replied_ms):
            exchange = Exchange(sent_ms, received_ms, replied_ms, answered_ms)
            self._parts.offset.learn(exchange, self._clock.monotonic_seconds())
        return answer

    def _report(self, *, urgent: bool = False) -> None:
        """Declare losses, once the gateway is there to hear of them; what goes on adds up in between."""
        parts, now = self._parts, self._clock.monotonic_seconds()
        if now < self._report_at or not parts.spools.losses:
            return
        book_id, entries = parts.spools.to_report()
        self._report_at = now + REPORT_EVERY_SECONDS
        try:
            body = declaration(parts.collector_id, parts.host_id, book_id, entries, self._clock.now_ms())
            require_accepted(self._send(body, urgent=urgent))
        except Rejected as error:
            self._report_at = now + REPORT_AGAIN_SECONDS
            self._log_once(f"declaration:{self._known_code(error.code)}", f"losses cannot be declared: {error.message}")
            return
        parts.spools.reported([entry.number for entry in entries])

    def _note_accepted(self, frames: list[Outgoing], answer: Answer) -> None:
        if len(self._confirmed) > CONFIRMED_MAXIMUM:
            self._confirmed.clear()
        self._confirmed.update(frame.definitions for frame in frames)
        told = json_of(answer).get("rejected")
        items = [item for item in told if isinstance(item, dict)] if isinstance(told, list) else []
        for item in items:
            code = self._known_code(shown(item.get("code", "unknown"), CODE_CHARACTERS))
            self._parts.counts.add(f"rejected:{code}")
            index = item.get("index")
            host = frames[index].host_id if isinstance(index, int) and 0 <= index < len(frames) else ""
            self._log_once(code, f"{shown(item.get('message', ''))} (host {host})")

    def _known_code(self, code: str) -> str:
        """Return a code, or one for all beyond the first so many: a gateway that makes them up costs no memory."""
        is_kept = code in self._codes_logged or len(self._codes_logged) < CODES_MAXIMUM
        return code if is_kept else "other"

    def _set_aside(self, member: ClassSpool, record: SpoolRecord, code: str) -> None:
        code = self._known_code(code)
        self._parts.aside.keep(record.payload, record.sequence, code)
        self._parts.spools.lose(member, record, LossReason.REFUSED)
        self._parts.counts.add(f"rejected:{code}")
        self._log_once(code, f"record {record.sequence} of class P{member.priority.value} is kept aside")

    def _log_once(self, code: str, message: str) -> None:
        if code not in self._codes_logged:
            self._codes_logged.add(code)
            logger.warning("gateway refused data: %s: %s", code, message)
