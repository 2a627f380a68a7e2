"""Read a topic's partitions together, fairly, up to what its writer has made durable."""

from collections.abc import Mapping
from pathlib import Path

from secondsight.clock import Clock
from secondsight.contracts import LogRecord, Polled
from secondsight.errors import Retryable
from secondsight.log.segments import Committed, SegmentReader
from secondsight.log.slots import SharedSlots

COMMITTED_NAME = "committed"
POLL_INTERVAL_SECONDS = 0.02


class Tail:
    """Reads a topic without a group, from given offsets on, or from the end. One thread uses it."""

    def __init__(self, root: Path, topic: str, clock: Clock, start: Mapping[int, int] | None = None) -> None:
        """Make a reader.

        Args:
            root: Folder of the log.
            topic: Need not exist yet.
            clock: For waiting.
            start: Partition -> first offset; None for the end as it is now. Partitions not named begin at 0.
        """
        self._partitions = PartitionReaders(root / topic)
        self._clock = clock
        for number, offset in (end_offsets(root, topic) if start is None else start).items():
            self._partitions.seek(number, offset)

    def poll(self, max_bytes: int, wait_seconds: float) -> Polled:
        """Return up to `max_bytes` of records, waiting up to `wait_seconds` for one.

        Raises:
            Retryable: The log cannot be read.
        """
        return poll(self._partitions, self._clock, max_bytes, wait_seconds)

    def close(self) -> None:
        """Close all files; may be called twice."""
        self._partitions.close()


class PartitionReaders:
    """Readers of all partitions of a topic, made as partitions appear."""

    def __init__(self, topic: Path) -> None:
        self._topic = topic
        self._readers: dict[int, SegmentReader] = {}
        self._starts: dict[int, int] = {}
        self._shared: dict[int, SharedSlots] = {}
        self._turn = 0

    @property
    def expired(self) -> int:
        """Return how many records were deleted before they were read."""
        return sum(reader.expired for reader in self._readers.values())

    @property
    def damaged(self) -> int:
        """Return how many records were skipped because they were damaged."""
        return sum(reader.damaged for reader in self._readers.values())

    @property
    def assigned(self) -> tuple[int, ...]:
        """Return the partitions that are there."""
        return tuple(sorted(self._readers))

    def seek(self, number: int, offset: int) -> None:
        """Begin partition `number` at `offset`."""
        self._starts[number] = offset
        if number in self._readers:
            self._readers[number].seek(offset)

    def read(self, max_bytes: int) -> list[LogRecord]:
        """Return the next records, sharing `max_bytes` among the partitions that have some.

        Raises:
            OSError: A file cannot be read.
        """
        self._discover()
        numbers = list(self.assigned)
        turn = self._turn % len(numbers) if numbers else 0
        self._turn += 1
        records: list[LogRecord] = []
        room = max_bytes
        for position, number in enumerate(numbers[turn:] + numbers[:turn]):
            share = room // (len(numbers) - position)
            if records and share <= 0:
                break
            taken = self._readers[number].read(max(1, share))
            records += taken
            room -= sum(len(record.value) for record in taken)
        return records

    def close(self) -> None:
        """Close all files; reading goes on after it. May be called twice."""
        for reader in self._readers.values():
            reader.close()
        for shared in self._shared.values():
            shared.close()
        self._shared.clear()

    def _discover(self) -> None:
        for number in partition_numbers(self._topic):
            if number not in self._readers:
                self._readers[number] = SegmentReader(
                    self._topic / str(number),
                    lambda number=number: self._limit(number),  # type: ignore[misc]  # bound now, called later
                    self._starts.get(number, 0),
                    number,
                )

    def _limit(self, number: int) -> Committed | None:
        if number not in self._shared:
            try:
                self._shared[number] = SharedSlots(self._topic / str(number) / COMMITTED_NAME)
            except FileNotFoundError:
                return None
        numbers = self._shared[number].read()
        return Committed(*numbers) if numbers else None


def partition_numbers(topic: Path) -> list[int]:
    """Return the partitions of a topic; none when it is not there."""
    try:
        return sorted(int(path.name) for path in topic.iterdir() if path.name.isdecimal())
    except FileNotFoundError:
        return []


def read_committed(partition: Path) -> Committed | None:
    """Return what is committed in a partition, or None when it was never written."""
    try:
        with SharedSlots(partition / COMMITTED_NAME) as shared:
            numbers = shared.read()
    except FileNotFoundError:
        return None
    return Committed(*numbers) if numbers else None


def end_offsets(root: Path, topic: str) -> dict[int, int]:
    """Return partition -> offset after the last durable record."""
    found = {number: read_committed(root / topic / str(number)) for number in partition_numbers(root / topic)}
    return {number: committed.next_offset for number, committed in found.items() if committed is not None}


def poll(partitions: PartitionReaders, clock: Clock, max_bytes: int, wait_seconds: float) -> Polled:
    """Return up to `max_bytes` of records, waiting up to `wait_seconds` for one.

    Raises:
        Retryable: The log cannot be read.
    """
    deadline = clock.monotonic_seconds() + wait_seconds
    damaged = partitions.damaged
    while True:
        try:
            records = partitions.read(max_bytes)
        except OSError as error:
            raise Retryable(f"log cannot be read: {error}") from error
        left_seconds = deadline - clock.monotonic_seconds()
        if records or left_seconds <= 0 or partitions.damaged > damaged:
            return Polled(tuple(records), partitions.assigned, partitions.damaged - damaged)
        clock.sleep(min(POLL_INTERVAL_SECONDS, left_seconds))
