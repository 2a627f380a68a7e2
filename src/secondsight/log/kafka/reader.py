"""Read all partitions of a Kafka topic without a group: from the beginning, or from the end as it is now."""

from collections.abc import Mapping

import confluent_kafka as kafka

from secondsight.contracts import Polled
from secondsight.errors import Permanent
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.kafka.fetch import Fetched
from secondsight.log.kafka.trouble import Trouble, error_of, new_client
from secondsight.log.topics import Topic


class KafkaReader:
    """A `LogConsumer` that shares with nobody and keeps no offsets.

    Args:
        from_end: Begin at what is appended from now on, instead of at the first record.
    """

    def __init__(self, config: KafkaConfig, topic: Topic, *, from_end: bool = False) -> None:
        self._config = config
        self._name = config.prefix + topic.name
        self._trouble = Trouble(config)
        self._fetched = Fetched(self._name, self._trouble)
        told = {"group.id": f"{config.prefix}reader", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        self._consumer = new_client(kafka.Consumer, config, self._trouble, told)
        self._start = kafka.OFFSET_END if from_end else kafka.OFFSET_BEGINNING
        self._numbers: tuple[int, ...] = ()

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:
        """Return up to `max_bytes` of records, waiting up to `wait_seconds` for one.

        Raises:
            Retryable: The brokers are away.
        """
        if not self._numbers:
            self._assign()
        return Polled(self._fetched.take(self._consumer, max_bytes, wait_seconds), self._numbers)

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
        except kafka.KafkaException as error:
            raise self._trouble.failure(f"topic {self._name} cannot be read", error_of(error)) from error
        self._numbers = tuple(sorted(topic.partitions))
        self._consumer.assign([kafka.TopicPartition(self._name, number, self._start) for number in self._numbers])
