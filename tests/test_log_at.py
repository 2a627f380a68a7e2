"""One record of a topic is read by its place, or is said not to be there."""

from pathlib import Path

import pytest

import kafka_broker
from kafka_broker import Broker
from secondsight.clock import ManualClock
from secondsight.log.at import read_record
from secondsight.log.embedded import EmbeddedLogWriter
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.segments import segment_bases, segment_path
from secondsight.log.topics import Topic

VALUES = [f"value {number}".encode() for number in range(5)]


def test_of_files(tmp_path: Path) -> None:
    assert read_record(tmp_path, "t", 0, 0) is None
    writer = EmbeddedLogWriter(tmp_path, "t", 1, ManualClock(7000))
    writer.append([(b"k", value) for value in VALUES])
    found = [read_record(tmp_path, "t", 0, offset) for offset in (0, 3, 4)]
    assert [(one.offset, one.value, one.append_time_ms) for one in found if one] == [
        (0, VALUES[0], 7000),
        (3, VALUES[3], 7000),
        (4, VALUES[4], 7000),
    ]
    assert read_record(tmp_path, "t", 0, 5) is None
    assert read_record(tmp_path, "t", 9, 0) is None
    writer.close()
    folder = tmp_path / "t" / "0"
    path = segment_path(folder, segment_bases(folder)[0])
    body = bytearray(path.read_bytes())
    body[body.index(VALUES[2])] ^= 1
    path.write_bytes(body)
    assert read_record(tmp_path, "t", 0, 2) is None
    assert read_record(tmp_path, "t", 0, 1) is not None


@pytest.mark.timeout(180)
@pytest.mark.skipif(bool(kafka_broker.why_not()), reason=kafka_broker.why_not() or "-")
def test_of_a_broker(kafka: Broker) -> None:
    from secondsight.log.kafka.admin import open_topics
    from secondsight.log.kafka.at import KafkaRecords
    from secondsight.log.kafka.writer import KafkaWriter

    config, topic = KafkaConfig(kafka.address, prefix="at.", replication=1), Topic("t", 1)
    open_topics(config, [topic])
    writer = KafkaWriter(config, topic)
    writer.append([(b"k", value) for value in VALUES])
    records = KafkaRecords(config, topic)
    found = [records.read(0, offset) for offset in (3, 0, 3)]
    assert [(one.offset, one.value) for one in found if one] == [(3, VALUES[3]), (0, VALUES[0]), (3, VALUES[3])]
    assert records.read(0, 5) is None
    assert records.read(0, 10**9) is None
    records.close()
    records.close()
    writer.close()
