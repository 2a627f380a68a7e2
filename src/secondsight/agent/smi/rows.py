"""What a text of nvidia-smi holds, whatever its form: rows of cells, troubles, and lines that could not be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from secondsight.agent.smi.texts import Text, Trouble


class Subject(StrEnum):
    """What a row is about."""

    GPU = "gpu"
    SLICE = "slice"
    PROCESS = "process"
    LISTED = "listed"


class Row(NamedTuple):
    """One GPU, one MIG slice or one process at one instant.

    Attributes:
        line: Line number from 1, of the row or of what holds it.
        cells: Column -> text; the names are those of `columns.py`.
        local_time: Instant as printed, without a zone; "" where the text has none.
        round: Number of the sampling round in the text, from 0: rows of one round belong together.
    """

    line: int
    subject: Subject
    cells: Mapping[str, Text]
    local_time: str = ""
    round: int = 0

    def text(self, column: str) -> str:
        """Return the text of a column, "" where it is not there."""
        cell = self.cells.get(column)
        return cell.text if cell is not None else ""


class Fault(NamedTuple):
    """A line that speaks instead of all rows.

    Attributes:
        address: PCI address or index that it names, "" for the whole host.
    """

    line: int
    trouble: Trouble
    address: str
    text: str
    round: int = 0


class Refusal(NamedTuple):
    """A line that could not be read."""

    line: int
    code: str
    reason: str


@dataclass(slots=True)
class Document:
    """Everything that one text said."""

    form: str
    rows: list[Row] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
