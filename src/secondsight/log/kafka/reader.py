"""Read all partitions of a Kafka topic without a group: from the beginning, a time, or the end as it is now."""

from collections.abc import Iterator, Mapping

import confluent_kafka as kafka

from secondsight.contracts import LogRecord, Polled
from secondsight.errors import Permanent, Retryable
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.kafka.fetch import Fetched
from secondsight.log.kafka.trouble import Trouble, error_of, new_client
from secondsight.log.topics import Topic

THROUGH_BYTES = 16 << 20


class KafkaReader:
    """A `LogConsumer` that shares with nobody and keeps no offsets.

    Args:
        from_end: Begin at what is appended from now on, instead of at the first record.
        from_ms: Begin at what was appended at this time or later, epoch ms.
    """

    def __init__(self, config: KafkaConfig, topic: Topic, *, from_end: bool = False, from_ms: int = 0) -> None:
        self._config = config
        self._name = config.prefix + topic.name
        self._trouble = Trouble(config)
        self._fetched = Fetched(self._name, self._trouble)
        told = {"group.id": f"{config.prefix}reader", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        self._consumer = new_client(kafka.Consumer, config, self._trouble, told)
        self._from_end, self._from_ms = from_end, from_ms
        self._next: dict[int, int] = {}

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:
        """Return up to `max_bytes` of records, waiting up to `wait_seconds` for one that is still to be appended.

        What is there already is waited for as long as brokers may take, so that no records means that all are read.

        Raises:
            Retryable: The brokers are away.
        """
        if not self._next:
            self._assign()
        records = self._fetched.take(self._consumer, max_bytes, wait_seconds)
        if not records and self._is_behind():
            records = self._fetched.take(self._consumer, max_bytes, self._config.open_seconds)
            if not records:
                raise Retryable(f"topic {self._name} cannot be read: it holds records, and none came")
        self._next.update({record.partition: record.offset + 1 for record in records})
        return Polled(records, tuple(sorted(self._next)))

    def through(self) -> Iterator[LogRecord]:
        """Give all records from the beginning on that are there now.

        Raises:
            Retryable: The brokers are away.
        """
        self._assign()
        ends = {number: self._ends(number)[1] for number in self._next}
        while any(self._next[number] < end for number, end in ends.items()):
            for record in self.poll(THROUGH_BYTES, 0.0).records:
                if record.offset < ends[record.partition]:
                    yield record

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Refuse: what has no group has no offsets.

        Raises:
            Permanent: Always.
        """
        raise Permanent(f"a reader of topic {self._name} keeps no offsets, not even {dict(offsets)}")

    def close(self) -> None:
        """Close the client; may be called twice."""
        self._consumer.close()

    def _assign(self) -> None:
        try:
            topic = self._consumer.list_topics(self._name, timeout=self._config.open_seconds).topics[self._name]
            begin = {number: self._begin(number) for number in topic.partitions}
            self._consumer.assign([kafka.TopicPartition(self._name, *place) for place in begin.items()])
        except kafka.KafkaException as error:
            raise self._trouble.failure(f"topic {self._name} cannot be read", error_of(error)) from error
        self._next = begin

    def _begin(self, number: int) -> int:
        low, high = self._ends(number)
        if not self._from_ms:
            return high if self._from_end else low
        asked = [kafka.TopicPartition(self._name, number, self._from_ms)]
        (found,) = self._consumer.offsets_for_times(asked, timeout=self._config.open_seconds)
        return found.offset if found.offset >= 0 else high

    def _is_behind(self) -> bool:
        """Tell whether the topic holds records that were not given yet."""
        try:
            return any(self._ends(number)[1] > offset for number, offset in self._next.items())
        except kafka.KafkaException as error:
            raise self._trouble.failure(f"topic {self._name} cannot be read", error_of(error)) from error

    def _ends(self, number: int) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after its last."""
        place = kafka.TopicPartition(self._name, number)
        low, high = self._consumer.get_watermark_offsets(place, timeout=self._config.open_seconds)
        return low, high
