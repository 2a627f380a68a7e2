"""Check that a sentence says no number that the result does not hold.

A number may be a cell, rounded to the digits that are written, in the column's unit or a usual multiple of it; or a
part of what was asked (a range, a limit, a name). Every other number makes the sentence untrue, and it is dropped.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from secondsight.ask.tables import Cell, Table

_NUMBER = re.compile(r"(?<![\w.])[-+\u2212]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORDS = re.compile(
    r"\b(zero|one|two|three|four|five|six|seven|eight|nine|ten|dozen|half|double|twice|thrice|hundreds?|thousands?|millions?)\b",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\bp\d{1,2}(?:\.\d+)?\b|\b\d{2}(?:\.\d+)?th percentile\b", re.IGNORECASE)
_MULTIPLES: dict[str, tuple[float, ...]] = {
    "1": (1.0, 100.0),
    "W": (1.0, 1e-3, 1e-6),
    "Hz": (1.0, 1e-6, 1e-9),
    "By": (1.0, 1e-3, 1e-6, 1e-9, 1e-12, 2.0**-10, 2.0**-20, 2.0**-30, 2.0**-40),
    "By/s": (1.0, 1e-3, 1e-6, 1e-9, 8.0, 8e-3, 8e-6, 8e-9),
    "s": (1.0, 1 / 60, 1 / 3600),
    "h": (1.0, 60.0),
}


def grounded(sentences: Sequence[str], tables: Sequence[Table], given: Collection[str] = ()) -> tuple[str, ...]:
    """Return the sentences whose every number is in the result or was given, in their order."""
    return tuple(sentence for sentence in sentences if is_grounded(sentence, tables, given))


def is_grounded(sentence: str, tables: Sequence[Table], given: Collection[str] = ()) -> bool:
    """Tell whether every number of a sentence is in the result or in one of the texts that were given.

    Numbers that are spelt out cannot be compared; a sentence with one is not grounded, unless the word was given.
    """
    rest = _without(sentence, [*given, *_texts(tables)])
    rest = _NAMED.sub(" ", rest)
    if _WORDS.search(rest):
        return False
    return all(_is_cell(number, digits, tables) for number, digits in numbers_of(rest))


def numbers_of(text: str) -> Iterator[tuple[float, float]]:
    """Yield each number of a text, with half of its last digit."""
    for match in _NUMBER.finditer(text):
        written = match[0].replace(",", "").replace("\u2212", "-")
        mantissa, _, exponent = written.lower().partition("e")
        decimals = len(mantissa.partition(".")[2])
        scale = 10.0 ** int(exponent) if exponent else 1.0
        yield float(written), 0.5 * 10.0**-decimals * scale


def _texts(tables: Sequence[Table]) -> Iterator[str]:
    for table in tables:
        for row in table.rows:
            for cell in row:
                if isinstance(cell, str) and cell:
                    yield cell
                    yield from ([cell[:19], cell[:16], cell[:10]] if re.match(r"\d{4}-\d{2}-\d{2}", cell) else [])


def _without(sentence: str, texts: Collection[str] | Sequence[str]) -> str:
    rest = sentence
    for text in sorted({text for text in texts if text}, key=len, reverse=True):
        rest = re.sub(rf"(?<![\w.]){re.escape(text)}(?![\w])", " ", rest, flags=re.IGNORECASE)
    return rest


def _is_cell(number: float, half: float, tables: Sequence[Table]) -> bool:
    return any(
        abs(value * multiple - number) <= half * 1.0001 or abs(-value * multiple - number) <= half * 1.0001
        for value, unit in _figures(tables)
        for multiple in _MULTIPLES.get(unit, (1.0,))
    )


def _figures(tables: Sequence[Table]) -> Iterator[tuple[float, str]]:
    for table in tables:
        for row in table.rows:
            for column, cell in zip(table.columns, row, strict=False):
                value = _number(cell)
                if value is not None:
                    yield value, column.unit


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, int | float) else None
