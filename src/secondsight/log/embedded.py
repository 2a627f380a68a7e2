"""A log of segment files in one folder: one writing process per topic, any number of reading processes.

ROOT/TOPIC/PARTITION/ holds segments and `committed`, through which readers see what is durable. ROOT/TOPIC/groups/
holds one cursor and one lock per group: of several consumers of a group one reads all partitions, the others stand by.
"""

import fcntl
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from secondsight.clock import Clock
from secondsight.contracts import Polled
from secondsight.errors import Permanent, Retryable
from secondsight.log.disk import Disk
from secondsight.log.record import MAX_PAYLOAD_BYTES
from secondsight.log.segments import Committed, Recovery, SegmentConfig, SegmentWriter
from secondsight.log.slots import SharedSlots, SlotFile
from secondsight.log.tail import COMMITTED_NAME, PartitionReaders, poll, read_committed

Item = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How a topic is written."""

    segment: SegmentConfig = field(default_factory=SegmentConfig)
    max_value_bytes: int = 16 << 20


@dataclass(slots=True, eq=False)
class _Batch:
    """What one `append` call waits for; it has failed until a commit says otherwise."""

    items: Sequence[tuple[int, bytes]]
    done: bool = False
    error: OSError | None = field(default_factory=lambda: OSError("the commit did not end"))


class EmbeddedLogWriter:
    """A `LogWriter`. Calls that come together share one write and one sync per partition."""

    def __init__(
        self,
        root: Path,
        topic: str,
        partitions: int,
        clock: Clock,
        config: LogConfig | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Open a topic for writing, repairing what a crash left.

        Raises:
            Permanent: Another process writes to it.
            Retryable: The file system refuses.
        """
        self._clock = clock
        self._config = config or LogConfig()
        self._changed = threading.Condition()
        self._syncing = ThreadPoolExecutor(partitions, "log-sync")
        self._pending: list[_Batch] = []
        self._leading = False
        self._closed = False
        folder = root / topic
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _take_lock(folder / "writer.lock")
        except OSError as error:
            raise Retryable(f"log {folder} cannot be opened: {error}") from error
        if self._lock is None:
            raise Permanent(f"another process writes to log {folder}")
        try:
            kept = disk or Disk()
            self._partitions = [_Partition(folder / str(number), self._config, kept) for number in range(partitions)]
        except OSError as error:
            os.close(self._lock)
            raise Retryable(f"log {folder} cannot be opened: {error}") from error

    @property
    def recoveries(self) -> tuple[Recovery, ...]:
        """Return what opening found, per partition."""
        return tuple(partition.writer.recovery for partition in self._partitions)

    def append(self, items: Sequence[Item]) -> None:
        """Append (key, value) pairs durably.

        Raises:
            Retryable: The file system refuses; nothing is promised about any item.
            Permanent: A value is too large, or the log is closed. Nothing is appended.
        """
        batch = _Batch([(self._partition_of(key), value) for key, value in items])
        if any(len(value) > min(self._config.max_value_bytes, MAX_PAYLOAD_BYTES) for _, value in items):
            raise Permanent(f"a value is larger than {self._config.max_value_bytes} bytes")
        if not batch.items:
            return
        self._commit_together(batch)
        if batch.error is not None:
            raise Retryable(f"log cannot be written: {batch.error}") from batch.error

    def close(self) -> None:
        """Wait for running appends and close; may be called twice."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.wait_for(lambda: not self._leading and not self._pending)
        self._syncing.shutdown()
        for partition in self._partitions:
            partition.close()
        if self._lock is not None:
            os.close(self._lock)

    def _partition_of(self, key: bytes) -> int:
        digest = blake2b(key, digest_size=8).digest()
        return int.from_bytes(digest, "little") % len(self._partitions)

    def _commit_together(self, batch: _Batch) -> None:
        """Wait until `batch` is done, leading a commit of all that waits when nobody else does."""
        with self._changed:
            if self._closed:
                raise Permanent("the log is closed")
            self._pending.append(batch)
            self._changed.wait_for(lambda: batch.done or not self._leading)
            if batch.done:
                return
            self._leading = True
            batches, self._pending = self._pending, []
        try:
            self._write(batches)
        finally:
            with self._changed:
                self._leading = False
                for item in batches:
                    item.done = True
                self._changed.notify_all()

    def _write(self, batches: Sequence[_Batch]) -> None:
        values: dict[int, list[bytes]] = {}
        for batch in batches:
            for number, value in batch.items:
                values.setdefault(number, []).append(value)
        now_ms = self._clock.now_ms()
        failures = {number: self._partitions[number].stage(staged, now_ms) for number, staged in values.items()}
        staged_well = [number for number, failure in failures.items() if failure is None]
        failures.update(zip(staged_well, self._commit(staged_well), strict=True))
        for batch in batches:
            errors = (failures[number] for number, _ in batch.items)
            batch.error = next((error for error in errors if error is not None), None)

    def _commit(self, numbers: Sequence[int]) -> list[OSError | None]:
        """Sync partitions, all at once, as their syncs share the file system's journal."""
        commits = [self._partitions[number].commit for number in numbers]
        others = [self._syncing.submit(commit) for commit in commits[1:]]
        return [commit() for commit in commits[:1]] + [future.result() for future in others]


class _Partition:
    """One partition's writer, with the numbers that readers look at."""

    def __init__(self, folder: Path, config: LogConfig, disk: Disk) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._shared = SharedSlots(folder / COMMITTED_NAME, disk)
        numbers = self._shared.read()
        self.writer = SegmentWriter(folder, config.segment, disk, Committed(*numbers) if numbers else None)
        self._publish()

    def stage(self, values: Sequence[bytes], now_ms: int) -> OSError | None:
        try:
            self.writer.stage(values, now_ms)
        except OSError as error:
            self.writer.abandon()
            return error
        return None

    def commit(self) -> OSError | None:
        try:
            self.writer.commit()
        except OSError as error:
            self.writer.abandon()
            return error
        finally:
            self._publish()
        return None

    def close(self) -> None:
        self.writer.close()
        self._shared.close()

    def _publish(self) -> None:
        committed = self.writer.committed
        self._shared.write((committed.base, committed.size_bytes, committed.next_offset))


class EmbeddedConsumer:
    """A `LogConsumer`.

    Attributes:
        expired_records: Records deleted by retention before this group read them, since this consumer was made.
        clamped_offsets: How often a committed offset lay beyond the end of its partition.
    """

    def __init__(self, root: Path, topic: str, group: str, clock: Clock, disk: Disk | None = None) -> None:
        self.clamped_offsets = 0
        self._topic = root / topic
        self._group = group
        self._clock = clock
        self._disk = disk or Disk()
        self._partitions = PartitionReaders(self._topic)
        self._cursor: SlotFile | None = None
        self._lock: int | None = None

    @property
    def expired_records(self) -> int:
        """Return how many records were deleted before they were read."""
        return self._partitions.expired

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:
        """Return up to `max_bytes` of records, waiting up to `wait_seconds` for one.

        Raises:
            Retryable: The log cannot be read.
        """
        if not self._join():
            self._clock.sleep(wait_seconds)
            return Polled((), ())
        return poll(self._partitions, self._clock, max_bytes, wait_seconds)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Durably store partition -> next offset to read. Never moves backwards; needs no space.

        Raises:
            Retryable: The log is away, or another member holds the group.
        """
        if self._cursor is None:
            raise Retryable(f"group {self._group} is not held by this consumer")
        numbers = list(self._cursor.numbers)
        numbers += [0] * (max(offsets, default=-1) + 1 - len(numbers))
        for number, offset in offsets.items():
            numbers[number] = max(numbers[number], offset)
        if tuple(numbers) == self._cursor.numbers:
            return
        try:
            self._cursor.write(tuple(numbers))
        except OSError as error:
            raise Retryable(f"offsets of group {self._group} cannot be written: {error}") from error

    def close(self) -> None:
        """Leave the group without committing; may be called twice."""
        self._partitions.close()
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _join(self) -> bool:
        """Tell whether this consumer holds its group, trying to get it."""
        if self._cursor is not None:
            return True
        groups = self._topic / "groups"
        try:
            groups.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock if self._lock is not None else _take_lock(groups / f"{self._group}.lock")
            if self._lock is None:
                return False
            self._cursor = SlotFile(cursor_path(self._topic, self._group), self._disk)
        except OSError as error:
            raise Retryable(f"group {self._group} cannot be opened: {error}") from error
        for number, offset in enumerate(self._cursor.numbers):
            self._resume(number, offset)
        return True

    def _resume(self, number: int, offset: int) -> None:
        limit = read_committed(self._topic / str(number))
        if limit is not None and offset > limit.next_offset:
            self.clamped_offsets += 1
            offset = limit.next_offset
        self._partitions.seek(number, offset)


def cursor_path(topic: Path, group: str) -> Path:
    """Return the path of a group's cursor."""
    return topic / "groups" / f"{group}.cursor"


def _take_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock at `path`, or None when another holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
