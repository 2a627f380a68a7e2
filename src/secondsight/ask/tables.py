"""What an answer's tables are: named columns, rows of cells, and what a cell may hold."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from secondsight.ask.calendar import zone_of
from secondsight.ask.compile import Column

Cell = float | int | str | None
DAYS_MAXIMUM = 100_000
"""A smaller number that is a date counts days since 1970, a greater one seconds."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of an answer.

    Attributes:
        keys: Names of the columns that say what a row is of.
        derived: Names of columns that were computed from the others.
    """

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    keys: tuple[str, ...] = ()
    derived: frozenset[str] = frozenset()
    truncated: bool = False

    def index(self, name: str) -> int:
        """Return where a column stands."""
        return [column.name for column in self.columns].index(name)

    def cells(self, name: str) -> list[Cell]:
        """Return the cells of a column."""
        at = self.index(name)
        return [row[at] for row in self.rows]

    def has(self, name: str) -> bool:
        """Tell whether there is such a column."""
        return any(column.name == name for column in self.columns)


def time_cell(value: object, zone: str) -> Cell:
    """Return a time as text in a zone: engines give seconds or days since 1970, or a moment."""
    if isinstance(value, datetime) and value.tzinfo:
        return plain_cell(value.astimezone(zone_of(zone)).replace(tzinfo=None))
    if not isinstance(value, int):
        return plain_cell(value)
    if value < DAYS_MAXIMUM:
        return str(date(1970, 1, 1) + timedelta(days=value))
    return plain_cell(datetime.fromtimestamp(value, UTC).astimezone(zone_of(zone)).replace(tzinfo=None))


def plain_cell(value: object) -> Cell:
    """Return a value as a cell: times as text in UTC, no NaN."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{moment.microsecond // 1000:03d}" if moment.microsecond else "")
    if value is None or isinstance(value, int | str):
        return value
    return str(value)


def as_number(cell: Cell) -> float:
    """Return the figure of a cell; 0 where it holds none."""
    return float(cell) if isinstance(cell, int | float) else 0.0
