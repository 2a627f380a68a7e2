"""Keep declarations of what will never be shipped, until a gateway has taken them.

The book is one preallocated file of two slots, so a loss can be declared on a full disk. Losses of one collector, kind,
class and reason add up in an open entry; entries are sealed when they are first reported, so that a report repeated
after a crash says the same under the same id. An entry names the records that it covers (`covers`): a spool settles
those when it is opened, so a crash between declaring and settling declares nothing twice and ships nothing declared.
"""

import errno
import json
import logging
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import google_crc32c

from secondsight.agent.spool.ranges import Span
from secondsight.agent.spool.tally import Count, Tally
from secondsight.log.disk import Disk
from secondsight.model import EntityKind, Priority

logger = logging.getLogger(__name__)

SLOT_BYTES = 256 << 10
OPEN_MAXIMUM = 200
"""Open entries; further collectors are counted under `SEVERAL`."""
SEVERAL = "*"

_MAGIC = b"SSLB"
_HEAD_BYTES = 4 + 4 + 8 + 4


class LossReason(StrEnum):
    """Why records never reach a gateway."""

    DISK_FULL = "disk_full"
    SPOOL_FULL = "spool_full"
    FLOOR = "floor"
    RETENTION = "retention"
    DAMAGED = "damaged"
    REFUSED = "refused"
    UNWRITABLE = "unwritable"


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of one collector, kind and class that will not be shipped.

    Attributes:
        kind: Entity kind; "" where it is not known.
        rows, values: As frame headers count them; 0 where they cannot be known.
        first_ms, last_ms: Event times by the host's corrected clock, from the first tick to the end of the last one;
            0 where they are not known.
        spool_id, first_sequence, last_sequence: The newest spool that they were in; -1 where they never were in one.
    """

    reason: LossReason
    priority: Priority
    kind: str
    collector_id: str
    records: int
    rows: int = 0
    values: int = 0
    first_ms: int = 0
    last_ms: int = 0
    spool_id: int = 0
    first_sequence: int = -1
    last_sequence: int = -1

    @property
    def key(self) -> tuple[str, ...]:
        """Return what losses must have in common to be added up."""
        return (self.reason.value, str(self.priority.value), self.kind, self.collector_id, str(self.was_spooled))

    @property
    def tally(self) -> Tally:
        """Return it as a tally; nothing where the kind is not known."""
        return {EntityKind(self.kind): Count(self.records, self.rows, self.values)} if self.kind else {}

    @property
    def was_spooled(self) -> bool:
        """Tell whether the records ever were in a spool."""
        return self.first_sequence >= 0

    def joined(self, other: "Loss") -> "Loss":
        """Return both as one; sequences are those of the newer spool."""
        same = self.spool_id == other.spool_id
        return replace(
            other,
            records=self.records + other.records,
            rows=self.rows + other.rows,
            values=self.values + other.values,
            first_ms=min(filter(None, (self.first_ms, other.first_ms)), default=0),
            last_ms=max(self.last_ms, other.last_ms),
            first_sequence=min(self.first_sequence, other.first_sequence) if same else other.first_sequence,
            last_sequence=max(self.last_sequence, other.last_sequence) if same else other.last_sequence,
        )


@dataclass(frozen=True, slots=True)
class Declared:
    """A sealed entry; `number` is its own within the book for ever."""

    number: int
    loss: Loss


class LossBook:
    """The declarations of one agent. Not safe to call from several threads. Never raises for the disk's sake.

    What an earlier process left is read by `try_load`, once the spools are this process's own.

    Attributes:
        covers: (spool id, first, end) of records that are declared and may not be settled yet.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.covers: list[tuple[int, int, int]] = []
        self._path = path
        self._disk = disk
        self._fd = -1
        self._generation = 0
        self._failing = False
        self._is_loaded = False
        self.book_id = secrets.randbits(64) or 1
        self._next = 1
        self._open: dict[tuple[str, ...], Loss] = {}
        self._sealed: list[Declared] = []

    @property
    def waiting(self) -> tuple[Loss, ...]:
        """Return what was declared and not reported."""
        return (*(entry.loss for entry in self._sealed), *self._open.values())

    def try_load(self) -> None:
        """Read the file where that was not possible yet."""
        try:
            if not self._is_loaded:
                self._load()
                if self._open:
                    self._save()
        except OSError as error:
            self._complain(error)

    def declare(self, losses: Iterable[Loss], covers: Sequence[tuple[int, Span]] = ()) -> None:
        """Add losses; durable when it returns, as far as the disk allows."""
        self._add(losses)
        self.covers += [(spool_id, first, end) for spool_id, (first, end) in covers]
        self._save()

    def settled(self, spool_id: int, span: Span) -> None:
        """Take note that a spool settled covered records; written with the next change."""
        first, end = span
        self.covers = [
            item for item in self.covers if not (item[0] == spool_id and first <= item[1] and item[2] <= end)
        ]

    def to_report(self) -> tuple[Declared, ...]:
        """Return what is to be reported, sealing what is open when nothing sealed waits."""
        if not self._sealed and self._open:
            for loss in self._open.values():
                self._sealed.append(Declared(self._next, loss))
                self._next += 1
            self._open = {}
            self._save()
        return tuple(self._sealed)

    def reported(self, numbers: Iterable[int]) -> None:
        """Forget entries that a gateway took."""
        gone = set(numbers)
        self._sealed = [entry for entry in self._sealed if entry.number not in gone]
        self._save()

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _add(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            fits = loss.key in self._open or len(self._open) < OPEN_MAXIMUM
            added = loss if fits else replace(loss, collector_id=SEVERAL)
            known = self._open.get(added.key)
            self._open[added.key] = added if known is None else known.joined(added)

    def _load(self) -> None:
        """Take in what an earlier process left; what was declared meanwhile stays.

        Raises:
            OSError: The file cannot be made or read.
        """
        self._allocate()
        raw = os.pread(self._fd, 2 * SLOT_BYTES, 0)
        found = [slot for slot in (_read_slot(raw[:SLOT_BYTES]), _read_slot(raw[SLOT_BYTES:])) if slot is not None]
        if found:
            self._generation, state = max(found, key=lambda slot: slot[0])
            self._restore(state)
        self._is_loaded = True

    def _restore(self, state: Mapping[str, Any]) -> None:
        declared = list(self._open.values())
        self.book_id, self._next = int(state["id"]), int(state["next"])
        self._open = {loss.key: loss for loss in map(_loss, state["open"])}
        self._sealed = [Declared(int(number), _loss(fields)) for number, fields in state["sealed"]]
        self.covers += [(int(spool_id), int(first), int(end)) for spool_id, first, end in state["covers"]]
        self._add(declared)

    def _allocate(self) -> None:
        """Open the file, making it anew where somebody deleted it.

        Raises:
            OSError: It cannot be made.
        """
        if self._fd >= 0 and os.fstat(self._fd).st_nlink:
            return
        self.close()
        fd = self._disk.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            missing = 2 * SLOT_BYTES - os.fstat(fd).st_size
            if missing > 0:
                self._disk.write_at(fd, bytes(missing), 2 * SLOT_BYTES - missing)
                self._disk.sync(fd)
                self._disk.sync_folder(self._path.parent)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def _save(self) -> None:
        self.try_load()
        if not self._is_loaded:
            return
        state = {
            "id": self.book_id,
            "next": self._next,
            "open": [asdict(loss) for loss in self._open.values()],
            "sealed": [[entry.number, asdict(entry.loss)] for entry in self._sealed],
            "covers": self.covers,
        }
        generation = self._generation + 1
        try:
            self._allocate()
            self._disk.write_at(self._fd, _slot(generation, state), generation % 2 * SLOT_BYTES)
            self._disk.sync(self._fd)
        except OSError as error:
            self._complain(error)
            return
        self._generation = generation
        self._failing = False

    def _complain(self, error: OSError) -> None:
        if not self._failing:
            logger.warning("losses cannot be kept in %s, only in memory: %s", self._path, error)
        self._failing = True


def _slot(generation: int, state: Mapping[str, Any]) -> bytes:
    text = json.dumps(state, separators=(",", ":")).encode()
    body = generation.to_bytes(8, "little") + len(text).to_bytes(4, "little") + text
    crc: int = google_crc32c.value(body)
    if len(body) > SLOT_BYTES - 8:
        raise OSError(errno.EFBIG, "too many kinds of losses wait")
    return _MAGIC + crc.to_bytes(4, "little") + body


def _read_slot(raw: bytes) -> tuple[int, Mapping[str, Any]] | None:
    if raw[:4] != _MAGIC:
        return None
    length = int.from_bytes(raw[16:20], "little")
    body = raw[8 : _HEAD_BYTES + length]
    if google_crc32c.value(body) != int.from_bytes(raw[4:8], "little"):
        return None
    return int.from_bytes(raw[8:16], "little"), json.loads(raw[_HEAD_BYTES : _HEAD_BYTES + length])


def _loss(fields: Mapping[str, Any]) -> Loss:
    named = {**fields, "reason": LossReason(fields["reason"]), "priority": Priority(fields["priority"])}
    return Loss(**named)
