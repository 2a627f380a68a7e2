"""Read a Kafka topic as a member of a group: static members, cooperative rebalance, offsets kept by the brokers.

A partition is given up only after what was read of it has been worked off, where the reader says how.

A static member may be fenced by itself: where the answer to its joining is lost with a broker, the client joins again,
and the group lets it in as a newer member of the same name. So it begins anew; two processes of one name fence each
other again and again, which ends one of them.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka as kafka

from secondsight.clock import Clock
from secondsight.contracts import Polled
from secondsight.errors import Retryable
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.kafka.fetch import Fetched
from secondsight.log.kafka.trouble import Fenced, Trouble, error_of, new_client
from secondsight.log.topics import Topic

RESTARTS_MAXIMUM, RESTARTS_SESSIONS = 3, 4
"""So often within so many sessions a fenced member begins anew."""


class KafkaConsumer:
    """A `LogConsumer`; it joins its group at the first poll.

    Attributes:
        before_revoke: Called within `poll` before partitions go to another member; works off what was read of them and
            commits. Not called for partitions that were lost already.
        restarts: How often it was fenced and began anew.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topic: Topic,
        group: str,
        clock: Clock,
        before_revoke: Callable[[tuple[int, ...]], None] | None = None,
    ) -> None:
        self._config = config
        self._name = config.prefix + topic.name
        self._group = config.prefix + group
        self.before_revoke = before_revoke
        self.restarts = 0
        self._clock = clock
        self._fenced: Fenced | None = None
        self._fenced_at: deque[float] = deque(maxlen=RESTARTS_MAXIMUM)
        self._consumer: kafka.Consumer | None = None
        self._assigned: set[int] = set()
        self._fresh: set[int] = set()
        self._given_up: set[int] = set()
        self._committed: dict[int, int] = {}
        self._trouble = Trouble(config)
        self._fetched = Fetched(self._name, self._trouble)

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:
        """Return up to `max_bytes` of records, waiting up to `wait_seconds` for one.

        Raises:
            Retryable: The brokers are away.
            Rejected: `instance_taken`: another process has this one's name.
        """
        if self._fenced is not None:
            self._begin_anew(self._fenced)
        consumer = self._consumer or self._join()
        try:
            records = self._fetched.take(consumer, max_bytes, wait_seconds)
        except Fenced as error:
            self._begin_anew(error)
            return Polled((), ())
        if not records:
            self._trouble.check(f"topic {self._name} cannot be read")
        back = self._given_up & self._assigned
        if back:
            records = tuple(record for record in records if record.partition not in back)
            self._begin_again(consumer, back)
        self._given_up.clear()
        fresh, self._fresh = self._fresh & self._assigned, set()
        return Polled(records, tuple(sorted(self._assigned)), fresh=tuple(sorted(fresh)))

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Store partition -> next offset to read with the brokers. Never moves backwards.

        Raises:
            Retryable: The brokers are away, or a partition is another member's now.
        """
        news = {number: offset for number, offset in offsets.items() if offset > self._committed.get(number, -1)}
        if not news:
            return
        if self._consumer is None:
            raise Retryable(f"group {self._group} has no member here")
        if not self._consumer.memberid():  # brokers would take it for another process of the same instance
            raise Retryable(f"group {self._group} has not let this member in yet, or not again")
        wanted = [kafka.TopicPartition(self._name, number, offset) for number, offset in news.items()]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False) or ()
        except kafka.KafkaException as error:
            raise self._not_committed(error_of(error)) from error
        refused = next((answer.error for answer in answers if answer.error is not None), None)
        if refused is not None:
            raise self._not_committed(refused)
        self._committed.update(news)

    def close(self) -> None:
        """Leave the group without committing; may be called twice."""
        self.before_revoke = None
        self._leave()

    def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._fetched.forget()
        self._assigned.clear()
        if consumer is not None:
            consumer.close()

    def _not_committed(self, error: kafka.KafkaError) -> Exception:
        """Return what a commit raises; a fenced member begins anew with the next poll."""
        failure = self._trouble.failure(f"offsets of group {self._group} cannot be committed", error)
        if not isinstance(failure, Fenced):
            return failure
        self._fenced = failure
        return Retryable(failure.message)

    def _begin_anew(self, fenced: Fenced) -> None:
        """Leave, to join again.

        Raises:
            Rejected: `instance_taken`: it was fenced too often lately for that to be its own doing.
        """
        now = self._clock.monotonic_seconds()
        lately = now - RESTARTS_SESSIONS * self._config.session_seconds
        if len(self._fenced_at) == RESTARTS_MAXIMUM and self._fenced_at[0] > lately:
            raise fenced
        self._fenced_at.append(now)
        before_revoke, self.before_revoke = self.before_revoke, None
        try:
            self._leave()
        finally:
            self.before_revoke = before_revoke
        self._fenced = None
        self.restarts += 1

    def _join(self) -> kafka.Consumer:
        told: dict[str, Any] = {
            "group.id": self._group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": round(self._config.session_seconds * 1000),
            "max.poll.interval.ms": 600_000,
            "fetch.wait.max.ms": 50,
            "isolation.level": "read_committed",
        }
        if self._config.instance:
            told["group.instance.id"] = f"{self._group}-{self._config.instance}"
        consumer = self._consumer = new_client(kafka.Consumer, self._config, self._trouble, told)
        consumer.subscribe([self._name], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        return consumer

    def _on_assign(self, consumer: kafka.Consumer, partitions: list[kafka.TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        numbers = [partition.partition for partition in partitions]
        self._assigned.update(numbers)
        self._fresh.update(numbers)
        for number in numbers:
            self._committed.pop(number, None)
        if self._consumer is None:  # leaving: the group dealt out its partitions once more
            return
        try:
            for known in consumer.committed(partitions, self._config.open_seconds):
                self._committed[known.partition] = known.offset
        except kafka.KafkaException as error:
            raise self._trouble.failure(f"offsets of group {self._group} cannot be read", error_of(error)) from error

    def _on_revoke(self, consumer: kafka.Consumer, partitions: list[kafka.TopicPartition]) -> None:
        numbers = tuple(sorted(partition.partition for partition in partitions))
        if self.before_revoke is not None and numbers:
            self.before_revoke(numbers)
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: kafka.Consumer, partitions: list[kafka.TopicPartition]) -> None:
        numbers = {partition.partition for partition in partitions}
        self._assigned -= numbers
        self._given_up |= numbers
        self._fetched.forget(numbers)
        consumer.incremental_unassign(partitions)

    def _begin_again(self, consumer: kafka.Consumer, numbers: set[int]) -> None:
        """Read partitions that went and came back within one poll from their committed offsets, whatever came of them.

        What came may be of before they went, when another member was not done with what lies before it.
        """
        self._fetched.forget(numbers)
        try:
            for number in numbers:
                offset = self._committed.get(number, -1)
                begin = offset if offset >= 0 else kafka.OFFSET_BEGINNING
                consumer.seek(kafka.TopicPartition(self._name, number, begin))
        except kafka.KafkaException as error:
            raise self._trouble.failure(f"topic {self._name} cannot be read again", error_of(error)) from error
