"""Turn the CSV of `nvidia-smi --query-gpu` or `--query-compute-apps` into rows, line by line, as it comes.

Columns are found by their heads, never by place. A head in the middle (the program was restarted, perhaps by another
driver) changes the columns from there on; a line that does not fit is refused alone; a last line without its end is
refused as cut. Separators are those of the program (comma and blank) or what a spreadsheet made of them.
"""

import csv
import io
import re
from collections.abc import Sequence

from secondsight.agent.smi.columns import column_of
from secondsight.agent.smi.rows import Document, Refusal, Row, Subject
from secondsight.agent.smi.texts import Text
from secondsight.agent.smi.troubles import fault_of

SEPARATORS = (",", ";", "\t")
FREE_TEXT = ("process_name", "name")
"""Columns whose text may hold a separator of its own."""

HEAD_WORDS = frozenset(
    {"timestamp", "index", "uuid", "name", "pci.bus_id", "pid", "process_name", "count", "driver_version", "pstate"}
)
LINE_CHARACTERS = 64 << 10
TIME_COLUMN = "timestamp"


class Table:
    """Reads one stream of lines; `feed` each, and take what came from `document`."""

    def __init__(self) -> None:
        self.document = Document("csv")
        self.round = 0
        self._heads: list[tuple[str, str]] = []
        self._separator = ","
        self._line = 0
        self._last_cell = ""
        self._seen: set[tuple[str, ...]] = set()

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns now in force; empty before the first head."""
        return tuple(name for name, _ in self._heads)

    def feed(self, line: str, *, ended: bool = True) -> None:
        """Take one line without its end; `ended` is false for a last line that has none."""
        self._line += 1
        text = line.lstrip("\ufeff").strip()
        if not text:
            return
        fault = None if self._is_row(text) else fault_of(self._line, text, self.round)
        if fault is not None:
            self.document.faults.append(fault)
        elif len(text) > LINE_CHARACTERS:
            self._refuse("line_too_long", f"{len(text)} characters")
        elif not self._take_head(text):
            self._take_row(text, ended=ended)

    def drain(self) -> Document:
        """Return what has come since the last call."""
        taken, self.document = self.document, Document("csv")
        return taken

    def _is_row(self, text: str) -> bool:
        return bool(self._heads) and len(_split(text, self._separator)) == len(self._heads) > 1

    def _refuse(self, code: str, reason: str) -> None:
        self.document.refusals.append(Refusal(self._line, code, reason))

    def _take_head(self, text: str) -> bool:
        separator = max(SEPARATORS, key=text.count)
        heads = [column_of(cell) for cell in _split(text, separator)]
        names = [name for name, _ in heads]
        known = sum(
            name in HEAD_WORDS or ("." in name and not name[:1].isdigit()) or bool(unit) for name, unit in heads
        )
        if len(set(names)) < len(names) or not (HEAD_WORDS & set(names)) or known * 2 < len(names):
            return False
        self._separator, self._heads, self._last_cell = separator, heads, ""
        return True

    def _take_row(self, text: str, *, ended: bool) -> None:
        if not self._heads:
            self._refuse("no_head", f"no line with the names of the columns stands before it: {text[:60]!r}")
            return
        cells = self._fitted(_split(text, self._separator))
        if len(cells) != len(self._heads):
            code = "cut_line" if not ended else "cell_count"
            self._refuse(code, f"{len(cells)} cells for {len(self._heads)} columns")
            return
        texts = {name: Text(cell, unit) for (name, unit), cell in zip(self._heads, cells, strict=True)}
        if not ended and not _is_whole(cells[-1], self._last_cell):
            self._refuse("cut_line", f"the text ends inside {self._heads[-1][0]}")
            del texts[self._heads[-1][0]]
        self._last_cell = cells[-1]
        self._begin_round(texts)
        subject = Subject.PROCESS if "pid" in texts else Subject.GPU
        time = texts.pop(TIME_COLUMN, Text("")).text
        self.document.rows.append(Row(self._line, subject, texts, time, self.round))

    def _fitted(self, cells: list[str]) -> list[str]:
        """Return cells with those joined again that a separator inside a free text has split."""
        extra = len(cells) - len(self._heads)
        names = [name for name, _ in self._heads]
        free = next((names.index(name) for name in FREE_TEXT if name in names), None)
        if extra <= 0 or free is None:
            return cells
        glue = f"{self._separator} "
        return [*cells[:free], glue.join(cells[free : free + extra + 1]), *cells[free + extra + 1 :]]

    def _begin_round(self, texts: dict[str, Text]) -> None:
        """Count a new round when the same GPU (and process) comes again."""
        key = tuple(texts[name].text for name in ("uuid", "index", "pci.bus_id", "pid") if name in texts)
        if key in self._seen:
            self._seen.clear()
            self.round += 1
        self._seen.add(key)


def read_table(text: str) -> Document:
    """Return what a whole text holds; never raises."""
    table = Table()
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        table.feed(line, ended=number < len(lines))
    return table.document


def _split(text: str, separator: str) -> list[str]:
    if '"' not in text:
        return [cell.strip() for cell in text.split(separator)]
    rows: Sequence[list[str]] = list(csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True))
    return [cell.strip() for row in rows for cell in row]


def _is_whole(cell: str, before: str) -> bool:
    """Tell whether the last cell of a text without an end is whole, by the cell above it."""
    if before.startswith("0x"):
        return len(cell) == len(before)
    has_end = re.compile(r"[A-Za-z%\]]$").search
    return not has_end(before) or has_end(cell) is not None
