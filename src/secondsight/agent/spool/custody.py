"""Give records up: declare them in the loss book, count them, then settle them, in this order.

What a crash leaves declared and unsettled is settled when the spool is opened next, so no record is both declared and
shipped, or declared twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secondsight.agent.counts import Counts
from secondsight.agent.spool.account import losses_of_frames, losses_of_tally, span_of
from secondsight.agent.spool.losses import Loss, LossBook, LossReason
from secondsight.agent.spool.ranges import Span
from secondsight.agent.spool.reading import SpoolRecord
from secondsight.agent.spool.records import Spool
from secondsight.agent.spool.tally import Tally, minus
from secondsight.model import Priority


@dataclass(frozen=True, slots=True)
class ClassSpool:
    """One spool with its class; an earlier one is only drained."""

    priority: Priority
    spool: Spool
    is_earlier: bool = False


class Custody:
    """What an agent answers for. Not safe to call from several threads. Spools raise OSError through it.

    Counts `dropped:REASON` records, `shed_rows:class=C,kind=K,reason=R` and `shed_values:...`.
    """

    def __init__(self, book: LossBook, counts: Counts, collector_id: str) -> None:
        """Make one.

        Args:
            book: Keeps what is declared.
            counts: Told of every loss.
            collector_id: Named for losses of which the collector cannot be read any more.
        """
        self.book = book
        self._counts = counts
        self._collector_id = collector_id

    def finish(self, members: Iterable[ClassSpool]) -> None:
        """Settle what a crash left declared and unsettled."""
        self.book.try_load()
        spools = {member.spool.spool_id: member.spool for member in members}
        for spool_id, first, end in list(self.book.covers):
            if spool_id in spools:
                spools[spool_id].settle(first, end)
            self.book.settled(spool_id, (first, end))

    def refuse(self, priority: Priority, frames: Sequence[bytes], reason: LossReason) -> None:
        """Declare frames that never got into a spool."""
        losses = losses_of_frames(priority, reason, [SpoolRecord(-1, 0, frame) for frame in frames], 0)
        rest = len(frames) - sum(loss.records for loss in losses)
        if rest:
            losses.append(Loss(reason, priority, "", self._collector_id, rest))
        self._declare(losses)

    def lose_record(self, member: ClassSpool, record: SpoolRecord, reason: LossReason) -> None:
        """Give up one record."""
        span = (record.sequence, record.sequence + 1)
        losses = losses_of_frames(member.priority, reason, [record], member.spool.spool_id)
        losses = losses or losses_of_tally(self._unread(member, reason), member.spool.tally_of_span(*span), span)
        self._lose(member, span, losses)

    def lose_missing(self, member: ClassSpool) -> None:
        """Give up what reading found missing or damaged."""
        spans, member.spool.missing = member.spool.missing, []
        for span in spans:
            unread = self._unread(member, LossReason.DAMAGED, span)
            self._lose(member, span, losses_of_tally(unread, member.spool.tally_of_span(*span), span))

    def lose_deleted(self, member: ClassSpool, tally: Tally, span: Span) -> None:
        """Declare what was in a spool that somebody deleted; there is nothing to settle."""
        losses = losses_of_tally(self._unread(member, LossReason.DAMAGED), tally, span)
        self._declare([loss for loss in losses if loss.kind])

    def shed_oldest(self, member: ClassSpool, reason: LossReason) -> None:
        """Give up what is owed of the oldest segment of a spool."""
        spool, span = member.spool, member.spool.oldest_segment()
        losses = losses_of_frames(member.priority, reason, spool.walk(*span), spool.spool_id)
        owed, records = spool.owed_in(*span)
        for loss in losses:
            owed = minus(owed, loss.tally)
            records -= loss.records
        if records > 0:
            first = max(span[0], spool.first_owed)
            losses += losses_of_tally(self._unread(member, reason), owed, (first, first + records))
        self._lose(member, span, losses)

    def _lose(self, member: ClassSpool, span: Span, losses: Sequence[Loss]) -> None:
        spool_id = member.spool.spool_id
        self._declare(losses, [(spool_id, span)])
        member.spool.settle(*span)
        self.book.settled(spool_id, span)

    def _declare(self, losses: Sequence[Loss], covers: Sequence[tuple[int, Span]] = ()) -> None:
        for loss in losses:
            self._counts.add(f"dropped:{loss.reason}", loss.records)
            label = f"class={loss.priority.value},kind={loss.kind},reason={loss.reason}"
            self._counts.add(f"shed_rows:{label}", loss.rows)
            self._counts.add(f"shed_values:{label}", loss.values)
        self.book.declare(losses, covers)

    def _unread(self, member: ClassSpool, reason: LossReason, span: Span | None = None) -> Loss:
        """Return what losses of unreadable records have in common."""
        first_ms, last_ms = span_of(member.spool.heads_around(*span)) if span else (0, 0)
        place = {"first_ms": first_ms, "last_ms": last_ms, "spool_id": member.spool.spool_id}
        return Loss(reason, member.priority, "", self._collector_id, 0, **place)
