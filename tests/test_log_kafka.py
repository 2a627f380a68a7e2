"""The Kafka log keeps what every log promises, against a real broker that is killed and started again."""

import dataclasses
import itertools
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kafka_broker
from kafka_broker import PLAIN_PASSWORD, SCRAM_PASSWORD, USER, Broker
from log_contract import *  # noqa: F403 - the contract's tests run here
from log_contract import PARTITIONS, drain, values
from secondsight.clock import ManualClock, SystemClock
from secondsight.contracts import Polled
from secondsight.errors import Permanent, Rejected, Retryable
from secondsight.log.kafka.admin import Backlog, missing_topics, open_topics
from secondsight.log.kafka.config import KafkaConfig
from secondsight.log.kafka.consumer import RESTARTS_MAXIMUM, KafkaConsumer
from secondsight.log.kafka.reader import KafkaReader
from secondsight.log.kafka.writer import KafkaWriter
from secondsight.log.topics import Topic, ingest_topic
from secondsight.replay.again import places_between, records_of_brokers
from secondsight.wire.envelope import Envelope, RecordType, encode_envelope
from tls_fixture import needs_openssl

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(kafka_broker.why_not()), reason=kafka_broker.why_not() or "-"),
]
TOPIC = Topic("t", PARTITIONS, max_value_bytes=1 << 20)
_numbers = itertools.count()


class KafkaLog:
    """A fresh topic; every test has a prefix of its own."""

    wait_seconds = 1.0

    def __init__(self, brokers: str, **settings: object) -> None:
        self.config = KafkaConfig(brokers, prefix=f"test{next(_numbers)}.", replication=1, **settings)
        open_topics(self.config, [TOPIC])
        self.closing = []

    def writer(self):
        self.closing.append(KafkaWriter(self.config, TOPIC))
        return self.closing[-1]

    def consumer(self, group, before_revoke=None, config=None):
        self.closing.append(KafkaConsumer(config or self.config, TOPIC, group, SystemClock(), before_revoke))
        return self.closing[-1]

    def close(self):
        for item in self.closing:
            item.close()


@pytest.fixture(scope="module")
def server(kafka: Broker) -> Broker:
    warm = KafkaLog(kafka.address)
    consumer = warm.consumer("g")
    while not consumer.poll(1, 0.5).assigned:  # the first group of a new broker takes a while
        pass
    warm.close()
    return kafka


@pytest.fixture
def log(server: Broker) -> Iterator[KafkaLog]:
    under_test = KafkaLog(server.address)
    yield under_test
    under_test.close()


def test_a_closed_log_refuses(log):
    writer = log.writer()
    writer.close()
    with pytest.raises(Permanent):
        writer.append([(b"k", b"v")])


def test_append_times_are_the_broker_s(log):
    log.writer().append([(b"k", b"v")])
    [record] = drain(log, log.consumer("g"), 1)
    assert record.append_time_ms > 1_700_000_000_000


def test_a_broker_that_is_killed_costs_nothing_that_was_promised(server, log):
    writer = KafkaWriter(KafkaConfig(**{**_fields(log.config), "delivery_seconds": 4.0}), TOPIC)
    log.closing.append(writer)
    writer.append([(b"k", str(number).encode()) for number in range(50)])
    server.kill()
    with pytest.raises(Retryable):
        writer.append([(b"k", b"lost?")])
    server.start()
    for _ in range(20):  # the way back may take the client longer than a delivery may
        with suppress(Retryable):
            writer.append([(b"k", b"after")])
            break
    got = values(drain(log, log.consumer("g"), 52))
    assert got[:50] == [str(number).encode() for number in range(50)]
    assert got[-1] == b"after"
    assert set(got[50:]) <= {b"lost?", b"after"}


def test_members_share_the_partitions_and_work_off_what_they_give_up(log):
    log.writer().append([(str(number).encode(), str(number).encode()) for number in range(60)])
    first = log.consumer("g", lambda numbers: given_up.append((numbers, _commit_all(first, taken))))
    given_up, taken = [], {}
    records = []
    while len(records) < 60:
        records += _take(first, taken, log)
    second = log.consumer("g")
    theirs = []
    for _ in range(30):
        records += _take(first, taken, log, 0.2)
        theirs += second.poll(1 << 20, 0.2).records
        if second.poll(1 << 20, 0.2).assigned:
            break
    held = set(first.poll(1 << 20, 0.2).assigned), set(second.poll(1 << 20, 0.2).assigned)
    assert held[0] | held[1] == set(range(PARTITIONS))
    assert not held[0] & held[1]
    assert all(held)
    assert given_up
    assert set(given_up[0][0]) == held[1]
    assert len(records) == 60
    assert theirs == []
    log.writer().append([(str(number).encode(), b"new") for number in range(60)])
    for _ in range(20):
        records += _take(first, taken, log, 0.2)
        theirs += second.poll(1 << 20, 0.2).records
        if len(records) + len(theirs) >= 120:
            break
    assert len(records) + len(theirs) == 120
    assert {record.partition for record in theirs} <= held[1]


def test_a_static_member_that_comes_back_soon_keeps_its_partitions(server):
    log = KafkaLog(server.address, instance="one")
    log.writer().append([(str(number).encode(), b"v") for number in range(30)])
    other_config = KafkaConfig(**{**_fields(log.config), "instance": "two"})
    revoked = []
    one, two = log.consumer("g"), log.consumer("g", revoked.append, other_config)
    for _ in range(40):
        one.poll(1 << 20, 0.2)
        two.poll(1 << 20, 0.2)
        if len(one.poll(1, 0.1).assigned) + len(two.poll(1, 0.1).assigned) == PARTITIONS and two.poll(1, 0.1).assigned:
            break
    held = set(two.poll(1, 0.1).assigned)
    assert held
    revoked.clear()
    one.close()
    for _ in range(10):
        assert set(two.poll(1 << 20, 0.2).assigned) == held
    again = log.consumer("g")
    for _ in range(30):
        if again.poll(1 << 20, 0.2).assigned:
            break
    assert set(again.poll(1, 0.1).assigned) == set(range(PARTITIONS)) - held
    assert revoked == []
    log.close()


def test_the_backlog_is_what_a_group_has_not_committed(log):
    writer, clock = log.writer(), ManualClock()
    backlog = Backlog(log.config, TOPIC, "g", clock)
    log.closing.append(backlog)
    assert backlog.records() == 0
    writer.append([(str(number).encode(), b"v") for number in range(40)])
    clock.move(1)
    assert backlog.records() == 40
    consumer, taken = log.consumer("g"), {}
    while sum(taken.values()) < 40:
        _take(consumer, taken, log)
    assert _commit_all(consumer, taken)
    clock.move(1)
    assert backlog.records() == 0
    writer.append([(b"k", b"v")])
    assert backlog.records() == 0
    clock.move(1)
    assert backlog.records() == 1


def test_topics_are_checked(server, log):
    prefix = log.config.prefix
    assert missing_topics(log.config, [TOPIC, Topic("u", 1)]) == [f"{prefix}u"]
    open_topics(log.config, [TOPIC])
    with pytest.raises(Permanent, match="partitions"):
        open_topics(log.config, [Topic("t", PARTITIONS + 1)])
    with pytest.raises(Permanent, match=r"cleanup\.policy"):
        open_topics(log.config, [Topic("t", 1, compacted=True)])
    with pytest.raises(Permanent, match=r"max\.message\.bytes"):
        open_topics(log.config, [Topic("t", 1, max_value_bytes=8 << 20)])
    with pytest.raises(Permanent, match="as many brokers"):
        open_topics(KafkaConfig(server.address, prefix="other.", replication=3), [TOPIC])


def test_a_compacted_topic_keeps_the_newest_of_each_key(log):
    topic = Topic("definitions", 1, compacted=True)
    open_topics(log.config, [topic])
    writer = KafkaWriter(log.config, topic)
    writer.append([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    writer.close()
    for _ in range(2):
        reader = KafkaReader(log.config, topic)
        assert {b"2", b"3"} <= set(values(drain(log, reader, 3)))
        with pytest.raises(Permanent):
            reader.commit({0: 3})
        reader.close()


def test_a_reader_that_does_not_wait_gives_all_that_is_there(log):
    log.writer().append([(str(number % 7).encode(), str(number).encode()) for number in range(500)])
    reader = KafkaReader(log.config, TOPIC)
    log.closing.append(reader)
    got: list[bytes] = []
    while records := reader.poll(500, 0.0).records:
        got += values(records)
    assert sorted(map(int, got)) == list(range(500))
    log.writer().append([(b"k", b"more")])
    assert values(reader.poll(500, 0.0).records) == [b"more"]


def test_one_record_is_given_as_soon_as_it_is_there(log):
    log.writer().append([(b"k", b"one")])
    reader = KafkaReader(dataclasses.replace(log.config, open_seconds=3600.0), TOPIC)
    consumer = log.consumer("g")
    log.closing.append(reader)
    assert values(reader.poll(1 << 20, 0.0).records) == [b"one"]
    while not (records := consumer.poll(1 << 20, 3600.0).records):
        pass
    assert values(records) == [b"one"]


def test_a_reader_from_the_end_sees_what_is_appended_from_then_on(log):
    writer = log.writer()
    writer.append([(str(number).encode(), b"old") for number in range(9)])
    reader = KafkaReader(log.config, TOPIC, from_end=True)
    log.closing.append(reader)
    assert reader.poll(1 << 20, 1.0) == Polled((), tuple(range(PARTITIONS)))
    writer.append([(str(number).encode(), b"new") for number in range(9)])
    assert values(drain(log, reader, 9)) == [b"new"] * 9


def test_a_log_is_told_again_from_a_time_to_its_end_as_it_is_now(log):
    config, topic = log.config, ingest_topic(PARTITIONS)
    open_topics(config, [topic])
    writer = KafkaWriter(config, topic)
    log.closing.append(writer)
    frame, other = (
        encode_envelope(Envelope(kind, "t", "eu", "c", 1, b"x")) for kind in (RecordType.FRAME, RecordType.REFUSED)
    )
    writer.append([(b"%d" % number, frame) for number in range(9)])
    first = list(records_of_brokers(config, 0))
    from_ms = max(record.append_time_ms for record in first) + 1
    while SystemClock().now_ms() <= from_ms:
        pass
    writer.append([(b"%d" % number, one) for number in range(9) for one in (frame, other)])
    everything = records_of_brokers(config, 0)
    next(everything)
    writer.append([(b"later", frame)])
    assert len(first) == 9
    assert len(list(everything)) == 26
    assert {record.append_time_ms >= from_ms for record in records_of_brokers(config, from_ms)} == {True}
    assert len(list(places_between(records_of_brokers(config, from_ms), from_ms, 2**62))) == 10
    assert list(places_between(records_of_brokers(config, 2**50), 2**50, 2**62)) == []


def test_brokers_that_are_not_there_are_named():
    with pytest.raises(Retryable, match=r"127\.0\.0\.1:1"):
        open_topics(KafkaConfig("127.0.0.1:1", replication=1, open_seconds=2.0), [TOPIC])


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"brokers": ""}, "brokers"),
        ({"brokers": "b:1", "security": "tls"}, "sasl_ssl"),
        ({"brokers": "b:1", "security": "sasl_ssl"}, "sasl_mechanism"),
        ({"brokers": "b:1", "security": "sasl_ssl", "sasl_mechanism": "MAGIC"}, "SCRAM-SHA-512"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, word):
    with pytest.raises(Rejected) as caught:
        KafkaConfig(**settings)
    assert word in caught.value.message + caught.value.hint


@needs_openssl
@pytest.mark.parametrize("way", ["certificate", "PLAIN", "SCRAM-SHA-512"])
def test_tls_and_sasl(server: Broker, tmp_path: Path, way: str) -> None:
    log = KafkaLog(**_secured(server, tmp_path, way))
    log.writer().append([(b"k", b"v")])
    assert values(drain(log, log.consumer("g"), 1)) == [b"v"]
    log.close()


REFUSALS = [
    ("PLAIN", {"sasl_password_file": "wrong"}, "log_refused", "sasl_password_file"),
    ("SCRAM-SHA-512", {"sasl_password_file": "wrong"}, "log_refused", "sasl_password_file"),
    ("SCRAM-SHA-512", {"sasl_username": "nobody"}, "log_refused", "sasl_username"),
    ("SCRAM-SHA-512", {"sasl_mechanism": "SCRAM-SHA-256"}, "log_refused", "sasl_mechanism"),
    ("PLAIN", {"ca_file": "client.crt"}, "log_untrusted", "ca_file"),
    ("certificate", {"certificate_file": None, "key_file": None}, "log_untrusted", "certificate_file"),
    ("PLAIN", {"ca_file": "no-such"}, "bad_config", "ca_file"),
    ("PLAIN", {"sasl_password_file": "no-such"}, "bad_config", "sasl_password_file"),
]


@needs_openssl
@pytest.mark.parametrize(("way", "settings", "code", "word"), REFUSALS)
def test_what_brokers_refuse_is_said_with_the_setting_and_no_secret(
    server: Broker, tmp_path: Path, way: str, settings: dict, code: str, word: str
) -> None:
    good = _secured(server, tmp_path, way)
    (tmp_path / "wrong").write_text("hunter2")
    files = {"wrong": tmp_path / "wrong", "client.crt": server.folder / "client.crt", "no-such": tmp_path / "no-such"}
    config = KafkaConfig(**(good | {name: files.get(value, value) for name, value in settings.items()}), replication=1)
    with pytest.raises(Rejected) as caught:
        open_topics(config, [TOPIC])
    assert caught.value.code == code
    assert word in caught.value.message + caught.value.hint
    assert not [secret for secret in ("hunter2", "pass word") if secret in str(caught.value) + caught.value.hint]


@needs_openssl
def test_a_client_that_is_refused_while_it_runs_says_why(server: Broker, tmp_path: Path) -> None:
    good = _secured(server, tmp_path, "SCRAM-SHA-512")
    (tmp_path / "password").write_text("hunter2")
    config = KafkaConfig(**good, delivery_seconds=2.0)
    writer, consumer = KafkaWriter(config, TOPIC), KafkaConsumer(config, TOPIC, "g", SystemClock())
    for attempt in (lambda: writer.append([(b"k", b"v")]), lambda: _poll_often(consumer)):
        with pytest.raises(Retryable, match=r"kafka\.sasl_password_file") as caught:
            attempt()
        assert "hunter2" not in str(caught.value)
    writer.close()
    consumer.close()


def test_of_two_members_of_one_name_one_is_told(server: Broker) -> None:
    log = KafkaLog(server.address, instance="one")
    first, second = log.consumer("g"), log.consumer("g")
    while not first.poll(1 << 20, 0.2).assigned:
        pass
    while not second.poll(1 << 20, 0.2).assigned:
        pass
    with pytest.raises(Rejected) as caught:
        _poll_often(first, second)
    assert caught.value.code == "instance_taken"
    assert max(first.restarts, second.restarts) == RESTARTS_MAXIMUM
    assert "'one'" in caught.value.message
    log.close()


def test_a_member_that_its_own_retried_join_fenced_begins_anew(server: Broker) -> None:
    log = KafkaLog(server.address, instance="one")
    first, retried = log.consumer("g"), log.consumer("g")
    log.writer().append([(b"k", b"1"), (b"k", b"2")])
    while not first.poll(1 << 20, 0.2).assigned:
        pass
    while not retried.poll(1 << 20, 0.2).assigned:
        pass
    with suppress(Retryable):
        first.commit({0: 0})
    taken, got = {}, []
    while len(got) < 2:
        got += _take(first, taken, log)
    assert first.restarts == 1
    first.commit(taken)
    assert sorted(record.value for record in got) == [b"1", b"2"]
    log.close()


def test_who_is_not_in_the_group_yet_commits_nothing(server: Broker) -> None:
    log = KafkaLog(server.address, instance="one")
    consumer = log.consumer("g")
    consumer.poll(1, 0.0)
    with pytest.raises(Retryable, match="not let this member in"):
        consumer.commit({0: 1})
    while not consumer.poll(1, 0.2).assigned:
        pass
    consumer.commit({0: 1})
    log.close()


def test_threads_append_while_the_group_reads(log):
    writer, done = log.writer(), threading.Event()

    def append() -> None:
        for number in range(200):
            writer.append([(str(number % 5).encode(), str(number).encode())])
        done.set()

    thread = threading.Thread(target=append)
    thread.start()
    got = drain(log, log.consumer("g"), 200)
    thread.join()
    assert sorted(int(value) for value in values(got)) == list(range(200))


def _secured(server: Broker, folder: Path, way: str) -> dict[str, object]:
    """Return the settings of a client that proves itself in some way."""
    ca_file = server.folder / "ca.pem"
    if way == "certificate":
        files = {"certificate_file": server.folder / "client.crt", "key_file": server.folder / "client.key"}
        return {"brokers": f"127.0.0.1:{server.ssl_port}", "security": "ssl", "ca_file": ca_file, **files}
    (folder / "password").write_text(f"{PLAIN_PASSWORD if way == 'PLAIN' else SCRAM_PASSWORD}\n")
    sasl = {"sasl_mechanism": way, "sasl_username": USER, "sasl_password_file": folder / "password"}
    return {"brokers": f"127.0.0.1:{server.sasl_port}", "security": "sasl_ssl", "ca_file": ca_file, **sasl}


def _poll_often(*consumers: KafkaConsumer) -> None:
    for _ in range(200):
        for consumer in consumers:
            consumer.poll(1 << 20, 0.2)


def _take(consumer, taken, log, wait_seconds=None):
    polled = consumer.poll(1 << 20, log.wait_seconds if wait_seconds is None else wait_seconds)
    for record in polled.records:
        taken[record.partition] = record.offset + 1
    return list(polled.records)


def _commit_all(consumer, taken):
    consumer.commit(taken)
    return True


def _fields(config):
    return {name: getattr(config, name) for name in config.__slots__}
