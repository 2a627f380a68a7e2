"""Name the topics and groups in which the stages meet; gateway and processor must agree on them."""

from dataclasses import dataclass

INGEST_TOPIC = "ingest"
DEFINITIONS_TOPIC = "definitions"
PROCESSOR_GROUP = "processor"


@dataclass(frozen=True, slots=True)
class Topic:
    """What a topic has to be, where a log makes topics.

    Attributes:
        partitions: Least number of them.
        max_value_bytes: Largest record.
        compacted: Keep the newest record of each key for ever, instead of all for `retention_seconds`.
    """

    name: str
    partitions: int
    max_value_bytes: int = 16 << 20
    compacted: bool = False
    retention_seconds: float = 7 * 86_400.0


def definitions_topic() -> Topic:
    """Return what the topic of definitions has to be; every processor reads the whole of it."""
    return Topic(DEFINITIONS_TOPIC, 1, compacted=True)


def ingest_topic(partitions: int = 1) -> Topic:
    """Return what the topic of frames has to be."""
    return Topic(INGEST_TOPIC, partitions)
