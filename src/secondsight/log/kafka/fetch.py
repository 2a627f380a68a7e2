"""Take records from a client in pieces of bounded size."""

from collections import deque
from collections.abc import Collection

import confluent_kafka as kafka

from secondsight.contracts import LogRecord
from secondsight.errors import Permanent, Retryable
from secondsight.log.kafka.trouble import Trouble, error_of

MESSAGES_AT_ONCE = 500


class Fetched:
    """Messages that a client gave and nobody took yet; one thread uses it."""

    def __init__(self, topic: str, trouble: Trouble) -> None:
        self._topic = topic
        self._trouble = trouble
        self._waiting: deque[kafka.Message] = deque()
        self._taken: list[LogRecord] = []
        self._gone: set[int] = set()

    def take(self, consumer: kafka.Consumer, max_bytes: int, wait_seconds: float) -> tuple[LogRecord, ...]:
        """Return up to `max_bytes` of records, in the order of offsets within each partition; at least one if any came.

        Raises:
            Retryable: The brokers are away.
        """
        self._taken = []
        size = 0
        while size < max_bytes:
            message = self._next(consumer, 0.0 if self._taken else wait_seconds)
            if message is None:
                break
            value = message.value() or b""
            if self._taken and size + len(value) > max_bytes:
                self._waiting.appendleft(message)
                break
            size += len(value)
            self._taken.append(LogRecord(*_place(message), message.timestamp()[1], value))
        return tuple(sorted(self._taken, key=lambda record: (record.partition, record.offset)))

    def forget(self, partitions: Collection[int] | None = None) -> None:
        """Forget what came of these partitions, or of all, and what `take` has of them: they may go while it waits."""
        if partitions is None:
            self._waiting.clear()
            self._taken = []
            return
        self._gone |= set(partitions)
        self._waiting = deque(message for message in self._waiting if message.partition() not in partitions)
        self._taken = [record for record in self._taken if record.partition not in partitions]

    def _next(self, consumer: kafka.Consumer, wait_seconds: float) -> kafka.Message | None:
        """Return the next record, or None where none came in time."""
        if not self._waiting:
            try:
                self._fetch(consumer, wait_seconds)
            except kafka.KafkaException as error:
                raise self._failure(error_of(error)) from error
        while self._waiting:
            message = self._waiting.popleft()
            failure = message.error()
            if failure is None:
                return message
            if failure.code() != kafka.KafkaError._PARTITION_EOF:
                raise self._failure(failure)
        return None

    def _fetch(self, consumer: kafka.Consumer, wait_seconds: float) -> None:
        """Wait for one record, then take what else is there: `consume` would wait until it has as many as it may."""
        self._gone = set()
        first = consumer.poll(wait_seconds) if wait_seconds else None
        if first is not None and first.partition() not in self._gone:
            self._waiting.append(first)
        fetched = consumer.consume(MESSAGES_AT_ONCE, 0.0)
        self._waiting.extend(message for message in fetched if message.partition() not in self._gone)

    def _failure(self, error: kafka.KafkaError) -> Retryable | Permanent:
        return self._trouble.failure(f"topic {self._topic} cannot be read", error)


def _place(message: kafka.Message) -> tuple[int, int]:
    """Return the partition and the offset of a record that was read."""
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise Retryable("the brokers gave a record without a place")
    return partition, offset
