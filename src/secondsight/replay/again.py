"""Have frames that the log still holds told again: places of a range, some at a time, to a gateway.

The gateway appends them anew, and the processor that has their partition takes them in as it takes every repeat: cell
by cell, beside what is stored and what comes meanwhile. So a range may be told again at any time and any number of
times. Frames of the last minutes that the processor remembers it passes over.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from secondsight.clock import Clock
from secondsight.contracts import LogRecord
from secondsight.errors import Rejected
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.tail import Tail, end_offsets
from secondsight.log.topics import INGEST_TOPIC, ingest_topic
from secondsight.replay.journal import Journal
from secondsight.wire.envelope import RecordType, decode_envelope

AT_ONCE = 500
POLL_BYTES = 16 << 20

Place = tuple[int, int]
"""Partition and offset."""
Send = Callable[[Sequence[Place]], None]
"""Has some records told again; may raise what makes the whole stop."""
Progress = Callable[[str, int, int], None]
"""Is told: what it is about, pieces of it that are told, pieces in all."""


def places_between(records: Iterable[LogRecord], from_ms: int, to_ms: int) -> Iterator[Place]:
    """Give the places of frames that were admitted in [from, to)."""
    for record in records:
        if from_ms <= record.append_time_ms < to_ms and _is_frame(record.value):
            yield record.partition, record.offset


def records_of_files(root: Path, clock: Clock) -> Iterator[LogRecord]:
    """Give the records of an embedded log, as far as it reaches now.

    Raises:
        Retryable: The log cannot be read.
    """
    left = {number: end for number, end in end_offsets(root, INGEST_TOPIC).items() if end}
    tail = Tail(root, INGEST_TOPIC, clock, {})
    try:
        while left:
            records = tail.poll(POLL_BYTES, 0.0).records
            if not records:
                return
            for record in records:
                if record.offset + 1 >= left.get(record.partition, 0):
                    left.pop(record.partition, None)
                yield record
    finally:
        tail.close()


def records_of_brokers(config: KafkaConfig, from_ms: int) -> Iterator[LogRecord]:
    """Give the records of a log in Kafka that were appended at this time or later, as far as it reaches now.

    Raises:
        Retryable: The brokers are away.
    """
    from secondsight.log.kafka.reader import KafkaReader  # only where the extra is installed

    reader = KafkaReader(config, ingest_topic(), from_ms=from_ms)
    try:
        yield from reader.through()
    finally:
        reader.close()


def tell_again(places: Sequence[Place], send: Send, journal: Journal, progress: Progress) -> int:
    """Have records told again that were not before; return how many.

    Raises:
        Retryable, Rejected: As `send`; what was told is remembered.
    """
    told = 0
    pieces = [places[first : first + AT_ONCE] for first in range(0, len(places), AT_ONCE)]
    for number, piece in enumerate(pieces, start=1):
        name = f"{piece[0][0]} {piece[0][1]} {len(piece)}"
        if not journal.is_done(name):
            send(piece)
            journal.done(name)
            told += len(piece)
        progress("log", number, len(pieces))
    return told


def _is_frame(value: bytes) -> bool:
    try:
        return decode_envelope(value).type is RecordType.FRAME
    except Rejected:
        return False
