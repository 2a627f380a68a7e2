"""Keep spools of all priority classes under one bound, and shed the least important first.

Under pressure (bytes, age, a full disk, or a file system below its floor) whole segments go, oldest first: of P2, then
of P1, of P0 last, and never of a class for the sake of a less important one. Whatever will not be shipped is declared
in the loss book before it is settled. A folder that cannot be opened costs what is appended meanwhile, counted, and is
tried again. A spool of the earlier layout (`frames`, all classes in one) is drained where it stands, then removed.
"""

import logging
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from secondsight.agent.counts import Counts
from secondsight.agent.spool.account import TickKey, ticks_of
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.custody import ClassSpool, Custody
from secondsight.agent.spool.losses import Declared, Loss, LossBook, LossReason
from secondsight.agent.spool.minutes import Minute, Minutes
from secondsight.agent.spool.opening import DRAINED, open_members
from secondsight.agent.spool.reading import SpoolRecord
from secondsight.agent.spool.records import NO_SPACE, Spool
from secondsight.agent.spool.tally import NOTHING, Tally, minus, plus
from secondsight.clock import Clock
from secondsight.errors import Permanent, Retryable
from secondsight.log.disk import Disk
from secondsight.log.record import HEADER_BYTES, MAX_PAYLOAD_BYTES
from secondsight.model import Priority

logger = logging.getLogger(__name__)

RECORD_OVERHEAD_BYTES = HEADER_BYTES + 200
REOPEN_SECONDS = 5.0


class Spools:
    """The records of one agent that are neither acknowledged nor declared lost. Safe to call from threads.

    What is given up is counted as `Custody` says.
    """

    def __init__(
        self,
        folder: Path,
        bounds: SpoolBounds,
        clock: Clock,
        counts: Counts,
        *,
        collector_id: str = "",
        disk: Disk | None = None,
    ) -> None:
        """Open the spools, making them when they are not there.

        Args:
            folder: Of everything that is spooled.
            bounds: See there.
            clock: Clock of the host.
            counts: Told of every loss.
            collector_id: Named for losses of which the collector cannot be read any more.
            disk: File system.

        Raises:
            Permanent: Another process has them open.
        """
        self._folder = folder
        self._bounds = bounds
        self._clock = clock
        self._counts = counts
        self._disk = disk or Disk()
        self._lock = threading.RLock()
        self._reopen_at = 0.0
        self._fault = ""
        self._is_pressed = False
        self._members: list[ClassSpool] = []
        self._minutes = Minutes()
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        self._custody = Custody(LossBook(folder / "losses", self._disk), counts, collector_id)
        self._segments = bounds.segments()
        self._try_open()

    @property
    def members(self) -> tuple[ClassSpool, ...]:
        """Return the spools, most important first, earlier ones before others; none while the folder is away."""
        with self._lock:
            self._try_open()
            self._renew_deleted()
            return tuple(self._members)

    @property
    def records(self) -> int:
        """Return how many records are owed."""
        with self._lock:
            return sum(member.spool.records for member in self._members)

    @property
    def size_bytes(self) -> int:
        """Return how many bytes the segments take on disk."""
        with self._lock:
            return sum(member.spool.size_bytes for member in self._members)

    @property
    def waiting_bytes(self) -> int:
        """Return how many bytes the segments take of classes that owe something."""
        with self._lock:
            return sum(member.spool.size_bytes for member in self._members if member.spool.records)

    @property
    def oldest_age_seconds(self) -> float:
        """Return the age of the oldest record that is owed; 0 when there is none."""
        with self._lock:
            times = [self.oldest_ms(member) for member in self._members]
            return max([0.0, *((self._clock.now_ms() - time) / 1000 for time in times if time is not None)])

    @property
    def newest_ms(self) -> int:
        """Return when the newest record was appended that was there when they were opened, 0 for none."""
        with self._lock:
            return max([0, *(member.spool.newest_ms for member in self._members)])

    @property
    def spooled(self) -> Mapping[Priority, Tally]:
        """Return what the spools ever took, by class."""
        with self._lock:
            return self._by_class("produced")

    def said_at(self, event_time_ms: int) -> Minute:
        """Return what this process spooled of the newest minute that is settled at an event time."""
        with self._lock:
            return self._minutes.said_at(event_time_ms)

    @property
    def in_flight(self) -> Mapping[Priority, Tally]:
        """Return what is owed, by class."""
        with self._lock:
            return self._by_class("owed")

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Return what was declared lost and not reported."""
        with self._lock:
            return self._custody.book.waiting

    def newest_ticks(self) -> set[TickKey]:
        """Return the ticks in the newest segment of each class, settled or not; for what may be spooled already."""
        with self._lock:
            records = [record for member in self._members for record in member.spool.newest_records()]
        return ticks_of(records)

    def oldest_needed_ms(self) -> int:
        """Return a time that no owed record was appended before."""
        return self._clock.now_ms() - round(self.oldest_age_seconds * 1000)

    def oldest_ms(self, member: ClassSpool) -> int | None:
        """Return when the first owed record of a spool was appended; None when nothing is owed or it cannot be read."""
        with self._lock:
            try:
                return member.spool.oldest_ms
            except OSError:
                return None

    def appended_since(self, member: ClassSpool, time_ms: int) -> int:
        """Return the first sequence of a spool that is known to be appended at `time_ms` or later."""
        with self._lock:
            return member.spool.appended_since(time_ms)

    def append(self, pieces: Mapping[Priority, Sequence[bytes]], time_ms: int | None = None) -> None:
        """Append frames durably, the most important class first; a class that is refused does not keep others out.

        They are as of now, or of `time_ms`.

        Raises:
            Retryable: The disk or the folder refuses some; they are declared lost.
            Permanent: Some are larger than everything may be; likewise.
        """
        with self._lock:
            self._try_open()
            self._renew_deleted()
            failures: list[Retryable | Permanent] = []
            for priority, frames in sorted(pieces.items()):
                try:
                    self._append(priority, frames, time_ms)
                    self._minutes.take(frames)
                except (Retryable, Permanent) as error:
                    failures.append(error)
            if failures:
                raise failures[0]

    def read(self, member: ClassSpool, max_records: int, max_bytes: int, start: int = 0) -> list[SpoolRecord]:
        """Return owed records in order from `start` on. What is found damaged on the way is declared and settled.

        Raises:
            Retryable: The disk fails.
        """
        with self._lock:
            try:
                while True:
                    records = member.spool.read(max_records, max_bytes, start)
                    if not member.spool.missing:
                        return records
                    self._custody.lose_missing(member)
                    if records:
                        return records
            except OSError as error:
                raise Retryable(f"spool {member.spool.folder} cannot be read: {error}") from error

    def settle(self, member: ClassSpool, first: int, end: int) -> None:
        """Settle records [first, end) that a gateway has answered for; needs no space. Repeating it is fine.

        Raises:
            Retryable: The disk fails; after a crash the records may come again.
        """
        with self._lock:
            try:
                member.spool.settle(first, end)
            except OSError as error:
                raise Retryable(f"spool cursor of {member.spool.folder} cannot be written: {error}") from error
            self._tidy(member)

    def lose(self, member: ClassSpool, record: SpoolRecord, reason: LossReason) -> None:
        """Declare one record lost and settle it.

        Raises:
            Retryable: The disk fails; see `settle`.
        """
        with self._lock:
            try:
                self._custody.lose_record(member, record, reason)
            except OSError as error:
                raise Retryable(f"spool cursor of {member.spool.folder} cannot be written: {error}") from error

    def tend(self) -> None:
        """Shed what is too old, and what the floor of the file system asks for; call it now and then.

        Raises:
            Retryable: The disk fails.
        """
        with self._lock:
            try:
                self._expire(self._clock.now_ms() - round(self._bounds.max_age_seconds * 1000))
                while (reason := self._pressure(0)) is not None and self._shed(Priority.P0, reason):
                    self._is_pressed = True
            except OSError as error:
                raise Retryable(f"spool {self._folder} cannot be cut: {error}") from error

    def to_report(self) -> tuple[int, tuple[Declared, ...]]:
        """Return the id of the loss book and the declarations that wait to be reported."""
        with self._lock:
            return self._custody.book.book_id, self._custody.book.to_report()

    def reported(self, numbers: Sequence[int]) -> None:
        """Forget declarations that a gateway took."""
        with self._lock:
            self._custody.book.reported(numbers)

    def close(self) -> None:
        """Close all files; may be called twice."""
        with self._lock:
            for member in self._members:
                member.spool.close()
            self._custody.book.close()

    def _by_class(self, what: str) -> dict[Priority, Tally]:
        found: dict[Priority, Tally] = {}
        for member in self._members:
            found[member.priority] = plus(found.get(member.priority, NOTHING), getattr(member.spool, what))
        return found

    def _try_open(self) -> None:
        """Open what is not open, at most every few seconds; what fails is said once.

        Raises:
            Permanent: Another process has them open.
        """
        now = self._clock.monotonic_seconds()
        if self._members or now < self._reopen_at:
            return
        self._reopen_at = now + REOPEN_SECONDS
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._members = open_members(self._folder, self._segments, self._clock, self._disk, self._counts)
        except OSError as error:
            if str(error) != self._fault:
                logger.error("spool %s cannot be opened, samples are lost until it can: %s", self._folder, error)  # noqa: TRY400 # the folder's fault, not this program's
            self._fault = str(error)
            self._custody.book.try_load()
        else:
            if self._fault:
                logger.info("spool %s is back", self._folder)
            self._fault = ""
            self._custody.finish(self._members)
            for member in list(self._members):
                self._tidy(member)

    def _append(self, priority: Priority, frames: Sequence[bytes], time_ms: int | None) -> None:
        size_bytes = sum(RECORD_OVERHEAD_BYTES + len(frame) for frame in frames)
        if not self._members:
            self._custody.refuse(priority, frames, LossReason.UNWRITABLE)
            raise Retryable(f"spool {self._folder} cannot be opened: {self._fault}")
        if size_bytes > min(self._bounds.max_bytes, MAX_PAYLOAD_BYTES):
            self._custody.refuse(priority, frames, LossReason.SPOOL_FULL)
            raise Permanent(f"{size_bytes} bytes do not fit a spool of {self._bounds.max_bytes}")
        try:
            self._append_or_shed(priority, frames, size_bytes, time_ms)
        except OSError as error:
            reason = LossReason.DISK_FULL if error.errno in NO_SPACE else LossReason.UNWRITABLE
            self._custody.refuse(priority, frames, reason)
            raise Retryable(f"spool {self._folder} cannot be written: {error}") from error

    def _append_or_shed(
        self, priority: Priority, frames: Sequence[bytes], size_bytes: int, time_ms: int | None
    ) -> None:
        self._is_pressed = False
        while (reason := self._pressure(size_bytes)) is not None:
            self._is_pressed = True
            if not self._shed(priority, reason):
                self._custody.refuse(priority, frames, reason)
                raise Retryable(f"spool {self._folder} has no room: {reason}")
        while True:
            try:
                self._writable(priority).append_many(frames, time_ms)
            except OSError as error:
                self._is_pressed = error.errno in NO_SPACE
                if not (self._is_pressed and self._shed(priority, LossReason.DISK_FULL)):
                    raise
            else:
                return

    def _writable(self, priority: Priority) -> Spool:
        return next(one.spool for one in self._members if one.priority == priority and not one.is_earlier)

    def _renew_deleted(self) -> None:
        """Open everything anew when somebody deleted spools under this process; what they held is lost."""
        deleted = [member for member in self._members if member.spool.is_deleted()]
        if not deleted:
            return
        held = [
            (member, member.spool.owed, (member.spool.first_owed, member.spool.next_sequence)) for member in deleted
        ]
        for member in self._members:
            member.spool.close()
        self._members, self._reopen_at = [], 0.0
        self._try_open()
        left = {member.spool.folder: member.spool.owed for member in self._members}
        for member, owed, span in held:
            logger.error("somebody deleted %s under the agent: what it held is lost", member.spool.folder)
            self._custody.lose_deleted(member, minus(owed, left.get(member.spool.folder, NOTHING)), span)

    def _pressure(self, size_bytes: int) -> LossReason | None:
        """Return why further bytes have no room, or None."""
        return self._bounds.pressure(self.size_bytes, size_bytes, self._disk.space(self._folder))

    def _shed(self, priority: Priority, reason: LossReason) -> bool:
        """Give up the oldest segment of the least important class, for the sake of `priority`; False if none may go."""
        spent = [member for member in self._members if member.spool.size_bytes and not member.spool.records]
        for member in spent:
            member.spool.compact()
        victim = None if spent else self._victim(priority, reason)
        if victim is not None and not victim.spool.drop_quarantined():
            self._custody.shed_oldest(victim, reason)
            self._tidy(victim)
        return bool(spent) or victim is not None

    def _victim(self, priority: Priority, reason: LossReason) -> ClassSpool | None:
        for candidate in sorted(Priority, reverse=True):
            if candidate < priority:
                return None
            members = [one for one in self._members if one.priority == candidate and one.spool.segments]
            kept = 1 if candidate == priority and reason is not LossReason.SPOOL_FULL else 0
            if sum(one.spool.segments for one in members) > kept:
                return members[0]
        return None

    def _expire(self, before_ms: int) -> None:
        for member in self._members:
            while member.spool.records and member.spool.newest_ms_of_oldest_segment() < before_ms:
                self._custody.shed_oldest(member, LossReason.RETENTION)

    def _tidy(self, member: ClassSpool) -> None:
        """After settling: free space at once while it is scarce, and remove an earlier spool that is empty."""
        if self._is_pressed and not member.spool.records:
            with suppress(OSError):
                member.spool.compact()
        if member.is_earlier and not member.spool.records:
            member.spool.close()
            self._members.remove(member)
            drained = self._folder / DRAINED
            with suppress(OSError):
                member.spool.folder.rename(drained)
            shutil.rmtree(drained, ignore_errors=True)
