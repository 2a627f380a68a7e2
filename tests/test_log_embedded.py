"""The embedded log keeps what every log promises, and what its own files promise."""

import threading

import pytest

from log_contract import *  # noqa: F403 - the contract's tests run here
from log_contract import PARTITIONS, drain, values
from secondsight.clock import ManualClock
from secondsight.errors import Permanent, Retryable
from secondsight.log.embedded import EmbeddedConsumer, EmbeddedLogWriter, LogConfig
from secondsight.log.retention import backlog_bytes, enforce_retention, group_offsets
from secondsight.log.segments import SegmentConfig
from secondsight.log.tail import Tail, end_offsets

SMALL = LogConfig(SegmentConfig(max_bytes=2000))


class EmbeddedLog:
    wait_seconds = 0.1

    def __init__(self, root, config=SMALL):
        self.root = root
        self.config = config
        self.clock = ManualClock()
        self.closing = []

    def writer(self):
        self.closing.append(EmbeddedLogWriter(self.root, "t", PARTITIONS, self.clock, self.config))
        return self.closing[-1]

    def consumer(self, group):
        self.closing.append(EmbeddedConsumer(self.root, "t", group, self.clock))
        return self.closing[-1]

    def close(self):
        for item in self.closing:
            item.close()


@pytest.fixture
def log(tmp_path):
    under_test = EmbeddedLog(tmp_path)
    yield under_test
    under_test.close()


def test_only_one_process_writes(log):
    log.writer()
    with pytest.raises(Permanent):
        log.writer()


def test_a_closed_log_refuses(log):
    writer = log.writer()
    writer.close()
    with pytest.raises(Permanent):
        writer.append([(b"k", b"v")])


def test_a_standby_does_not_commit(log):
    log.writer().append([(b"k", b"v")])
    first, second = log.consumer("g"), log.consumer("g")
    assert first.poll(100, 0).assigned == (0, 1, 2)
    assert second.poll(100, 0).assigned == ()
    with pytest.raises(Retryable):
        second.commit({0: 1})


def test_reopening_goes_on_where_it_ended(log):
    for number in range(5):
        writer = log.writer()
        writer.append([(b"k", str(number).encode())])
        writer.close()
    assert values(drain(log, log.consumer("g"), 5)) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_tail_begins_at_the_end_or_where_it_is_told(log):
    writer = log.writer()
    writer.append([(b"k", b"before")])
    tail = Tail(log.root, "t", log.clock)
    told = Tail(log.root, "t", log.clock, {})
    writer.append([(b"k", b"after")])
    assert [record.value for record in tail.poll(1000, 0).records] == [b"after"]
    assert [record.value for record in told.poll(1000, 0).records] == [b"before", b"after"]
    tail.close()
    told.close()


def test_backlog_falls_to_zero_as_offsets_are_committed(log):
    writer = log.writer()
    for number in range(30):
        writer.append([(b"k", b"x" * 300), (str(number).encode(), b"y" * 300)])
    total = backlog_bytes(log.root, "t", "g")
    assert total == 60 * 332
    consumer = log.consumer("g")
    records = drain(log, consumer, 60)
    seen = [total]
    for record in records:
        consumer.commit({record.partition: record.offset + 1})
        seen.append(backlog_bytes(log.root, "t", "g"))
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0
    assert group_offsets(log.root, "t", "g") == end_offsets(log.root, "t")


def test_age_never_deletes_what_a_group_has_not_read(log):
    writer = log.writer()
    for _ in range(40):
        writer.append([(b"k", b"x" * 300)])
        log.clock.move(10)
    consumer = log.consumer("slow")
    records = drain(log, consumer, 40)
    consumer.commit({records[0].partition: 1})
    assert enforce_retention(log.root, "t", log.clock.now_ms(), 200, 1 << 30).segments == 0
    consumer.commit({records[-1].partition: records[-1].offset + 1})
    report = enforce_retention(log.root, "t", log.clock.now_ms(), 200, 1 << 30)
    assert report.dropped_records == 14
    assert report.unread_records == {}
    assert enforce_retention(log.root, "t", log.clock.now_ms(), 200, 1 << 30).segments == 0


def test_the_bound_in_bytes_counts_what_it_deletes_unread(log):
    writer = log.writer()
    for _ in range(40):
        writer.append([(b"k", b"x" * 300)])
        log.clock.move(10)
    consumer = log.consumer("slow")
    first = drain(log, consumer, 1, max_bytes=1)
    consumer.commit({first[0].partition: 1})
    consumer.close()
    report = enforce_retention(log.root, "t", log.clock.now_ms(), 1e9, 26 * 332)
    dropped = report.dropped_records
    assert dropped > 1
    assert report.unread_records == {"slow": dropped - 1}
    again = log.consumer("slow")
    assert len(drain(log, again, 40 - dropped)) == 40 - dropped
    assert again.expired_records == dropped - 1


def test_retention_by_bytes_keeps_the_segment_that_is_written(log):
    writer = log.writer()
    for _ in range(40):
        writer.append([(b"k", b"x" * 300)])
    report = enforce_retention(log.root, "t", log.clock.now_ms(), 1e9, 0)
    assert report.dropped_bytes > 0
    writer.append([(b"k", b"last")])
    assert values(drain(log, log.consumer("g"), 40))[-1] == b"last"


def test_an_offset_beyond_the_end_is_clamped_and_reported(log):
    writer = log.writer()
    writer.append([(b"k", b"v")])
    consumer = log.consumer("g")
    record = drain(log, consumer, 1)[0]
    consumer.commit({record.partition: 1_000_000})
    consumer.close()
    again = log.consumer("g")
    assert again.poll(100, 0).records == ()
    assert again.clamped_offsets == 1
    writer.append([(b"k", b"next")])
    assert values(drain(log, again, 1)) == [b"next"]


def test_closing_waits_for_appends_that_were_there_before(log):
    writer = log.writer()
    outcomes = []

    def append(number):
        try:
            writer.append([(str(number).encode(), str(number).encode())])
            outcomes.append(number)
        except Permanent:
            pass

    threads = [threading.Thread(target=append, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    writer.close()
    for thread in threads:
        thread.join()
    records = drain(log, log.consumer("g"), 16)
    assert sorted(int(record.value) for record in records) == sorted(outcomes)
