"""What every log promises. A test module makes a fixture `log` (a `LogUnderTest`) and imports these tests."""

import threading
from collections import defaultdict
from typing import Protocol

import pytest

from secondsight.contracts import LogConsumer, LogRecord, LogWriter
from secondsight.errors import Permanent

PARTITIONS = 3


class LogUnderTest(Protocol):
    """Makes writers and consumers of one fresh topic of PARTITIONS partitions."""

    wait_seconds: float

    def writer(self) -> LogWriter: ...

    def consumer(self, group: str) -> LogConsumer: ...


def drain(log: LogUnderTest, consumer: LogConsumer, count: int, max_bytes: int = 1 << 20) -> list[LogRecord]:
    """Poll until `count` records came, or nothing comes any more."""
    records: list[LogRecord] = []
    quiet = 0
    while len(records) < count and quiet < 3:
        polled = consumer.poll(max_bytes, log.wait_seconds)
        records += polled.records
        quiet = 0 if polled.records else quiet + 1
    return records


def values(records: list[LogRecord]) -> list[bytes]:
    return [record.value for record in records]


def test_what_is_appended_is_read(log):
    with_empty = [(b"k", b"one"), (b"k", b""), (b"k", b"three")]
    log.writer().append(with_empty)
    assert values(drain(log, log.consumer("g"), 3)) == [b"one", b"", b"three"]


def test_equal_keys_share_a_partition_and_keep_their_order(log):
    writer = log.writer()
    items = [(f"key{number % 7}".encode(), f"{number % 7}:{number}".encode()) for number in range(200)]
    for start in range(0, 200, 20):
        writer.append(items[start : start + 20])
    records = drain(log, log.consumer("g"), 200)
    partition_of: dict[bytes, set[int]] = defaultdict(set)
    order: dict[bytes, list[int]] = defaultdict(list)
    for record in records:
        key, number = record.value.split(b":")
        partition_of[key].add(record.partition)
        order[key].append(int(number))
    assert all(len(found) == 1 for found in partition_of.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert len(records) == 200
    assert len({record.partition for record in records}) > 1


def test_offsets_grow_within_a_partition(log):
    log.writer().append([(str(number).encode(), b"x") for number in range(100)])
    offsets: dict[int, list[int]] = defaultdict(list)
    for record in drain(log, log.consumer("g"), 100, max_bytes=64):
        offsets[record.partition].append(record.offset)
    assert all(found == sorted(set(found)) for found in offsets.values())


def test_an_empty_append_is_fine(log):
    writer = log.writer()
    writer.append([])
    assert drain(log, log.consumer("g"), 1) == []


def test_groups_read_for_themselves(log):
    log.writer().append([(b"k", b"v")])
    assert values(drain(log, log.consumer("one"), 1)) == [b"v"]
    assert values(drain(log, log.consumer("two"), 1)) == [b"v"]


def test_a_restart_resumes_at_what_was_committed(log):
    log.writer().append([(b"k", str(number).encode()) for number in range(10)])
    first = log.consumer("g")
    records = drain(log, first, 10)
    first.commit({records[3].partition: records[3].offset + 1})
    first.close()
    first.close()
    assert values(drain(log, log.consumer("g"), 6)) == [str(number).encode() for number in range(4, 10)]


def test_without_a_commit_everything_comes_again(log):
    log.writer().append([(b"k", b"v")])
    first = log.consumer("g")
    drain(log, first, 1)
    first.close()
    assert values(drain(log, log.consumer("g"), 1)) == [b"v"]


def test_commits_never_move_backwards(log):
    log.writer().append([(b"k", str(number).encode()) for number in range(5)])
    first = log.consumer("g")
    records = drain(log, first, 5)
    partition = records[0].partition
    first.commit({partition: records[3].offset + 1})
    first.commit({partition: records[0].offset + 1})
    first.close()
    assert values(drain(log, log.consumer("g"), 1)) == [b"4"]


def test_a_record_larger_than_asked_for_still_comes(log):
    log.writer().append([(b"k", b"x" * 100_000)])
    assert values(drain(log, log.consumer("g"), 1, max_bytes=10)) == [b"x" * 100_000]


def test_polls_are_bounded(log):
    log.writer().append([(str(number).encode(), b"x" * 1000) for number in range(100)])
    consumer = log.consumer("g")
    total = 0
    while total < 100:
        polled = consumer.poll(10_000, log.wait_seconds)
        assert sum(len(record.value) for record in polled.records) <= 12_000
        total += len(polled.records)


def test_a_consumer_sees_what_comes_later(log):
    consumer = log.consumer("g")
    assert consumer.poll(1000, 0).records == ()
    writer = log.writer()
    writer.append([(b"k", b"1")])
    assert values(drain(log, consumer, 1)) == [b"1"]
    writer.append([(b"k", b"2")])
    assert values(drain(log, consumer, 1)) == [b"2"]


def test_a_second_member_takes_over(log):
    log.writer().append([(b"k", str(number).encode()) for number in range(4)])
    first, second = log.consumer("g"), log.consumer("g")
    records = drain(log, first, 4)
    first.commit({records[0].partition: records[1].offset + 1})
    first.close()
    assert values(drain(log, second, 2)) == [b"2", b"3"]


def test_threads_append_together(log):
    writer = log.writer()

    def append(thread: int) -> None:
        for number in range(20):
            writer.append([(str(thread).encode(), f"{thread}:{number}".encode())])

    threads = [threading.Thread(target=append, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen: dict[bytes, list[int]] = defaultdict(list)
    for record in drain(log, log.consumer("g"), 160):
        thread_name, number = record.value.split(b":")
        seen[thread_name].append(int(number))
    assert seen == {str(thread).encode(): list(range(20)) for thread in range(8)}


def test_too_large_a_value_is_refused_before_anything_is_written(log):
    writer = log.writer()
    with pytest.raises(Permanent):
        writer.append([(b"k", b"small"), (b"k", bytes(65 << 20))])
    writer.append([(b"k", b"after")])
    assert values(drain(log, log.consumer("g"), 2)) == [b"after"]


def test_closing_twice_is_fine(log):
    writer = log.writer()
    writer.append([(b"k", b"v")])
    writer.close()
    writer.close()
