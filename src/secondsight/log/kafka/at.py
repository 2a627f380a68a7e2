"""Read one record of a Kafka topic by its place."""

from threading import Lock

import confluent_kafka as kafka

from secondsight.contracts import LogRecord
from secondsight.errors import Retryable
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.kafka.trouble import Trouble, error_of, new_client
from secondsight.log.topics import Topic

WAIT_SECONDS = 10.0
_GONE = frozenset({kafka.KafkaError._AUTO_OFFSET_RESET, kafka.KafkaError.OFFSET_OUT_OF_RANGE})
_NOT_THERE = _GONE | {kafka.KafkaError._PARTITION_EOF}


class KafkaRecords:
    """Reads records of a topic by their places, one at a time; safe from several threads. Connects when first asked."""

    def __init__(self, config: KafkaConfig, topic: Topic) -> None:
        self._config = config
        self._name = config.prefix + topic.name
        self._trouble = Trouble(config)
        self._lock = Lock()
        self._consumer: kafka.Consumer | None = None

    def read(self, partition: int, offset: int) -> LogRecord | None:
        """Return the record at a place, or None where it is not there any more, or not yet.

        Raises:
            Retryable: The brokers are away.
        """
        with self._lock:
            consumer = self._consumer = self._consumer or self._connect()
            try:
                consumer.assign([kafka.TopicPartition(self._name, partition, offset)])
                message = consumer.poll(WAIT_SECONDS)
            except kafka.KafkaException as error:
                raise self._trouble.failure(f"topic {self._name} cannot be read", error_of(error)) from error
        if message is None:
            raise Retryable(f"topic {self._name} did not answer for record {offset} of partition {partition}")
        failure = message.error()
        if failure is not None and failure.code() in _NOT_THERE:
            return None
        if failure is not None:
            raise self._trouble.failure(f"topic {self._name} cannot be read", failure)
        found = message.offset() == offset
        return LogRecord(partition, offset, message.timestamp()[1], message.value() or b"") if found else None

    def close(self) -> None:
        """Close the client; may be called twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _connect(self) -> kafka.Consumer:
        told = {
            "group.id": f"{self._config.prefix}reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        return new_client(kafka.Consumer, self._config, self._trouble, told)
