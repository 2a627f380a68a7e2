"""Keep where a spool has come: its id, the first record that is owed, and the ranges beyond it that are settled."""

from pathlib import Path

from secondsight.agent.spool.ranges import Ranges
from secondsight.agent.spool.tally import NOTHING, NUMBERS, Tally, tally_from, tally_numbers
from secondsight.log.disk import Disk
from secondsight.log.slots import SlotFile

RANGES_MAXIMUM = 200
"""Ranges that the file has room for; more are remembered until a restart, and what is in them may come again."""


class Cursor:
    """A preallocated file, so writing needs no space. Not safe to call from several threads; raises OSError.

    Where it cannot be read, everything that is there is owed, and what is not there was settled before.

    Attributes:
        spool_id: Random 64-bit id of the spool, 0 while it has none.
        acked: Sequence before which everything is settled.
        ahead: Ranges beyond it that are settled.
        tally: Of all before `acked`.
        was_occupied: There were segments when it was written last.
        was_empty: It held nothing when it was opened.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._file = SlotFile(path, disk)
        numbers = self._file.numbers
        self.was_empty = not numbers
        self.spool_id, self.acked, occupied = numbers[:3] if len(numbers) >= 3 else (0, 0, 0)
        self.was_occupied = bool(occupied)
        self.tally: Tally = tally_from(numbers[3 : 3 + NUMBERS]) if len(numbers) >= 3 + NUMBERS else NOTHING
        pairs = numbers[3 + NUMBERS :]
        self.ahead: Ranges = tuple(zip(pairs[::2], pairs[1::2], strict=True))

    @property
    def last_settled(self) -> int:
        """Return the sequence after the last record that is settled."""
        return max([self.acked, *(end for _, end in self.ahead)])

    def write(self, *, is_occupied: bool, durable: bool = True) -> None:
        """Write it; while every record is there, a power cut may bring an older one back, and they go again."""
        ranges = [number for span in self.ahead[:RANGES_MAXIMUM] for number in span]
        numbers = (self.spool_id, self.acked, is_occupied, *tally_numbers(self.tally), *ranges)
        self._file.write(numbers, durable=durable)

    def is_deleted(self) -> bool:
        """Tell whether somebody deleted the file while it is open."""
        return self._file.is_deleted()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()
