"""Make and check Kafka topics, and measure how far a group is behind."""

import math
from collections.abc import Mapping, Sequence

import confluent_kafka as kafka
from confluent_kafka.admin import (  # type: ignore[attr-defined] # re-exported without saying so
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from secondsight.clock import Clock
from secondsight.errors import Permanent, Retryable
from secondsight.log.kafka.config import RECORD_OVERHEAD_BYTES, KafkaConfig
from secondsight.log.kafka.trouble import Trouble, error_of, new_client, wait_for_brokers
from secondsight.log.topics import Topic

MEASURE_SECONDS = 1.0
LOOK_SECONDS = 0.1


def open_topics(config: KafkaConfig, topics: Sequence[Topic]) -> None:
    """Make topics that are not there, and check that those that are can do what is wanted of them.

    Raises:
        Retryable: The brokers are away.
        Permanent: A topic is of other settings, or the brokers refuse; the message says which and what to do.
    """
    admin, trouble = _reached(config)
    try:
        there = admin.list_topics(timeout=config.open_seconds).topics
        missing = [topic for topic in topics if config.prefix + topic.name not in there]
        _make(admin, config, missing)
        names = [config.prefix + topic.name for topic in topics]
        partitions = _partitions(admin, config, names)
        described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
        settings = {resource.name: future.result(config.open_seconds) for resource, future in described.items()}
    except kafka.KafkaException as error:
        raise trouble.failure(f"the brokers {config.brokers} do not answer", error_of(error)) from error
    for topic, name in zip(topics, names, strict=True):
        _check(topic, name, partitions[name], {key: entry.value for key, entry in settings[name].items()})


def missing_topics(config: KafkaConfig, topics: Sequence[Topic]) -> list[str]:
    """Return the names of topics that are not there yet.

    Raises:
        Retryable: The brokers are away.
        Rejected: The brokers refuse.
    """
    admin, trouble = _reached(config)
    try:
        there = admin.list_topics(timeout=config.open_seconds).topics
    except kafka.KafkaException as error:
        raise trouble.failure(f"the brokers {config.brokers} do not answer", error_of(error)) from error
    return [name for topic in topics if (name := config.prefix + topic.name) not in there]


class Backlog:
    """Measures how far a group is behind, at most every `MEASURE_SECONDS`; one thread uses it."""

    def __init__(self, config: KafkaConfig, topic: Topic, group: str, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._measured: tuple[float, dict[int, int]] | None = None
        self._name = config.prefix + topic.name
        told = {"group.id": config.prefix + group, "enable.auto.commit": False}
        self._trouble = Trouble(config)
        self._client = new_client(kafka.Consumer, config, self._trouble, told)

    def records(self) -> int:
        """Return how many records of the topic the group has not committed.

        Raises:
            Retryable: The brokers are away.
        """
        return sum(self.by_partition().values())

    def by_partition(self) -> dict[int, int]:
        """Return them by partition.

        Raises:
            Retryable: The brokers are away.
        """
        now = self._clock.monotonic_seconds()
        if self._measured is None or now - self._measured[0] >= MEASURE_SECONDS:
            self._measured = now, self._measure()
        return self._measured[1]

    def close(self) -> None:
        """Close the client; may be called twice."""
        self._client.close()

    def _measure(self) -> dict[int, int]:
        timeout = self._config.open_seconds
        try:
            numbers = self._client.list_topics(self._name, timeout=timeout).topics[self._name].partitions
            wanted = [kafka.TopicPartition(self._name, number) for number in numbers]
            found = {}
            for known in self._client.committed(wanted, timeout):
                low, high = self._client.get_watermark_offsets(known, timeout=timeout)
                found[known.partition] = max(high - max(known.offset, low), 0)
        except kafka.KafkaException as error:
            raise self._trouble.failure(f"the backlog of {self._name} cannot be measured", error_of(error)) from error
        return found


def _reached(config: KafkaConfig) -> tuple[AdminClient, Trouble]:
    """Return a client that brokers have answered."""
    trouble = Trouble(config)
    admin = new_client(AdminClient, config, trouble)
    wait_for_brokers(admin, config, trouble)
    return admin, trouble


def _settings(topic: Topic, replication: int) -> dict[str, str]:
    told = {
        "cleanup.policy": "compact" if topic.compacted else "delete",
        "max.message.bytes": str(topic.max_value_bytes + RECORD_OVERHEAD_BYTES),
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2" if replication >= 3 else "1",
    }
    return told if topic.compacted else told | {"retention.ms": str(round(topic.retention_seconds * 1000))}


def _make(admin: AdminClient, config: KafkaConfig, topics: Sequence[Topic]) -> None:
    wanted = [
        NewTopic(
            config.prefix + topic.name,
            topic.partitions,
            config.replication,
            config=_settings(topic, config.replication),
        )
        for topic in topics
    ]
    if not wanted:
        return
    for name, future in admin.create_topics(wanted).items():
        try:
            future.result(config.open_seconds)
        except kafka.KafkaException as error:
            code = error.args[0].code()
            if code == kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            if code == kafka.KafkaError.INVALID_REPLICATION_FACTOR:
                hint = f"{config.replication} copies need as many brokers: lower kafka.replication or add brokers"
                raise Permanent(f"topic {name} cannot be made: {hint}") from error
            raise


def _partitions(admin: AdminClient, config: KafkaConfig, names: Sequence[str]) -> dict[str, int]:
    """Return how many partitions topics have; those that were just made take a moment to be seen.

    Raises:
        Retryable: One is not seen in `open_seconds`.
    """
    for _ in range(math.ceil(config.open_seconds / LOOK_SECONDS)):
        there = admin.list_topics(timeout=config.open_seconds).topics
        found = {name: len(there[name].partitions) for name in names if name in there}
        if len(found) == len(names) and all(found.values()):
            return found
        admin.poll(LOOK_SECONDS)
    raise Retryable(f"the brokers {config.brokers} made topics and do not show them: {', '.join(names)}")


def _check(topic: Topic, name: str, partitions: int, settings: Mapping[str, str]) -> None:
    policy = "compact" if topic.compacted else "delete"
    if partitions < topic.partitions:
        raise Permanent(f"topic {name} has {partitions} partitions and {topic.partitions} are wanted")
    if settings["cleanup.policy"] != policy:
        raise Permanent(f"topic {name} has cleanup.policy {settings['cleanup.policy']}; set it to {policy}")
    if int(settings["max.message.bytes"]) < topic.max_value_bytes:
        raise Permanent(
            f"topic {name} takes records of {settings['max.message.bytes']} bytes; "
            f"set max.message.bytes to {topic.max_value_bytes + RECORD_OVERHEAD_BYTES}"
        )
