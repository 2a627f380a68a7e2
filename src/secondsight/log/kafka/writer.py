"""Append to a Kafka topic: idempotent, and done when all replicas in sync have every record."""

import threading
from collections.abc import Sequence

import confluent_kafka as kafka

from secondsight.errors import Permanent, Retryable
from secondsight.log.kafka.config import RECORD_OVERHEAD_BYTES, KafkaConfig
from secondsight.log.kafka.trouble import Trouble, new_client
from secondsight.log.topics import Topic

Item = tuple[bytes, bytes]

SERVE_SECONDS = 0.1
FIRST_GUESS_BYTES = 16_384.0
MEAN_WEIGHT = 0.01
PERMANENT_CODES = frozenset(
    {
        kafka.KafkaError.MSG_SIZE_TOO_LARGE,
        kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        kafka.KafkaError.INVALID_RECORD,
    }
)


class KafkaWriter:
    """A `LogWriter` of one topic."""

    def __init__(self, config: KafkaConfig, topic: Topic) -> None:
        """Make the producer; brokers are reached at the first append."""
        self._config = config
        self._topic = topic
        self._name = config.prefix + topic.name
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._mean_bytes = FIRST_GUESS_BYTES
        self._trouble = Trouble(config)
        self._producer = self._new_producer()
        self._serving = threading.Thread(target=self._serve, name=f"kafka-{topic.name}", daemon=True)
        self._serving.start()

    @property
    def mean_bytes(self) -> float:
        """Return about how large the latest records were."""
        return self._mean_bytes

    def append(self, items: Sequence[Item]) -> None:
        """Append (key, value) pairs; they are on all replicas in sync when it returns.

        Raises:
            Retryable: Brokers are away or too few in sync; nothing is promised about any item.
            Permanent: A value is too large, this client may not write, or the log is closed.
        """
        if self._stopping.is_set():
            raise Permanent("the log is closed")
        if any(len(value) > self._topic.max_value_bytes for _, value in items):
            raise Permanent(f"a value is larger than {self._topic.max_value_bytes} bytes")
        if not items:
            return
        mean = sum(len(value) for _, value in items) / len(items)
        self._mean_bytes += MEAN_WEIGHT * (mean - self._mean_bytes)
        batch = _Batch(len(items))
        producer = self._producer
        self._send(producer, items, batch)
        if not batch.wait(self._config.delivery_seconds + 5):
            raise Retryable(f"brokers did not answer for topic {self._name}")
        batch.check(f"topic {self._name} cannot be written", self._trouble)
        if batch.fatal:
            self._replace(producer)
            raise Retryable(f"the producer of topic {self._name} had to be made anew")

    def close(self) -> None:
        """Wait for running appends and close; may be called twice."""
        if self._stopping.is_set():
            return
        self._producer.flush(self._config.delivery_seconds)
        self._stopping.set()
        self._serving.join()

    def _send(self, producer: kafka.Producer, items: Sequence[Item], batch: "_Batch") -> None:
        for key, value in items:
            try:
                producer.produce(self._name, value, key, on_delivery=batch.delivered)
            except BufferError as error:
                batch.refuse("too much waits for the brokers already", error)
            except kafka.KafkaException as error:
                batch.refuse(str(error), error)

    def _new_producer(self) -> kafka.Producer:
        told = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": "none",  # frames are compressed already
            "partitioner": "murmur2_random",
            "message.max.bytes": self._topic.max_value_bytes + RECORD_OVERHEAD_BYTES,
            "delivery.timeout.ms": round(self._config.delivery_seconds * 1000),
            "queue.buffering.max.kbytes": 256 << 10,
        }
        return new_client(kafka.Producer, self._config, self._trouble, told)

    def _serve(self) -> None:
        """Let the client call back for what was delivered."""
        while not self._stopping.is_set():
            self._producer.poll(SERVE_SECONDS)

    def _replace(self, broken: kafka.Producer) -> None:
        """Put a new producer in place of one that met a fatal error, unless another thread did."""
        with self._lock:
            if self._producer is broken:
                self._producer = self._new_producer()


class _Batch:
    """The records that one append waits for."""

    def __init__(self, records: int) -> None:
        self._left = records
        self._changed = threading.Condition()
        self._error: kafka.KafkaError | None = None
        self._refused: tuple[str, Exception] | None = None
        self.fatal = False

    def delivered(self, error: kafka.KafkaError | None, _message: object) -> None:
        """Note that one record is durable, or is not."""
        with self._changed:
            self._error = self._error or error
            self.fatal = self.fatal or (error is not None and error.fatal())
            self._one_less()

    def refuse(self, reason: str, error: Exception) -> None:
        """Note that one record was not even taken."""
        with self._changed:
            self._refused = self._refused or (reason, error)
            self._one_less()

    def wait(self, seconds: float) -> bool:
        """Wait until each record has its answer; False if one has none in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._left == 0, seconds)

    def check(self, what: str, trouble: Trouble) -> None:
        """Raise what went wrong, if anything did."""
        if self._error is not None and not self.fatal:
            if self._error.code() in PERMANENT_CODES:
                raise Permanent(f"{what}: {self._error.str()}")
            raise trouble.failure(what, self._error)
        if self._refused is not None:
            reason, error = self._refused
            raise Retryable(f"{what}: {reason}") from error

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._changed.notify_all()
