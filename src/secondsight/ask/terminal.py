"""Print an answer for a terminal: the sentences, tables with bars or a sparkline, how it was read, what to ask next."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from secondsight.ask.format import figure
from secondsight.query.terminal import BAR_WIDTH, UUID_START, console_of, sparkline

ROWS_SHOWN = 25
_HIDDEN = frozenset({"covered_share", "legal", "link"})
_BUCKETS = frozenset({"5m", "hour", "day", "week", "month"})

Body = Mapping[str, Any]


def print_answer(body: Body, out: TextIO, *, as_json: bool) -> None:
    """Print what `POST /v1/ask` answered."""
    if as_json:
        out.write(json.dumps(body, indent=2) + "\n")
        return
    console = console_of(out)
    console.print(f"[bold]{escape(_heading(body))}[/bold]", highlight=False)
    series = _series(body)
    if series:
        console.print(series, highlight=False)
    for table in _shown(body["tables"]):
        if table["rows"] and table["columns"]:
            console.print(_table(table, bars=body["chart"] in ("bar", "grouped bar")))
    for caveat in body["caveats"]:
        console.print(escape(caveat), style="dim", highlight=False)
    if body["suggestions"]:
        console.print(escape("next: " + "; ".join(body["suggestions"])), style="dim", highlight=False)


def _heading(body: Body) -> str:
    words = {"clarify": "question back: ", "refuse": "refused: ", "unanswerable": "not measured: "}
    return words.get(body["treatment"], "") + (body["text"] or "See the table.")


def _shown(tables: Sequence[Body]) -> Sequence[Body]:
    """Return the tables that a terminal shows: of a diagnosis its evidence, as its figures are many columns wide."""
    return [table for table in tables if table["name"] == "evidence"] or tables


def _series(body: Body) -> str:
    """Return a sparkline of the first figure over time, where the answer is one series."""
    granularity = body["interpretation"]["granularity"]
    first = next((table for table in body["tables"] if table["rows"]), None)
    if first is None or granularity not in _BUCKETS or len(first["keys"]) != 1 or len(first["columns"]) < 2:
        return ""
    values = [row[1] for row in first["rows"]]
    if not all(isinstance(value, int | float) or value is None for value in values):
        return ""
    return f"{escape(first['columns'][1]['words'])}  {sparkline(values, 60)}"


def _table(body: Body, *, bars: bool) -> Table:
    places = [index for index, column in enumerate(body["columns"]) if column["name"] not in _HIDDEN]
    columns = [body["columns"][index] for index in places]
    keys = set(body["keys"])
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        is_key = column["name"] in keys
        least = UUID_START if column["name"] == "gpu_id" else None
        words = escape(column["words"])
        table.add_column(words, justify="left" if is_key else "right", overflow="fold", min_width=least)
    drawn = next((index for index in places if body["columns"][index]["unit"] or _is_count(body, index)), None)
    if bars and drawn is not None:
        table.add_column("", min_width=BAR_WIDTH, no_wrap=True)
    for row in body["rows"][:ROWS_SHOWN]:
        cells = [escape(_cell(row[index], body["columns"][index], keys)) for index in places]
        extra = [_bar(row[drawn], _greatest(body["rows"], drawn))] if bars and drawn is not None else []
        table.add_row(*cells, *extra)
    if len(body["rows"]) > ROWS_SHOWN:
        table.caption = f"{len(body['rows']) - ROWS_SHOWN} more rows; --json has all"
    return table


def _is_count(body: Body, index: int) -> bool:
    is_key = body["columns"][index]["name"] in body["keys"]
    return not is_key and any(isinstance(row[index], int | float) for row in body["rows"])


def _cell(value: Any, column: Body, keys: set[str]) -> str:
    if value is None:
        return "-"
    if column["name"] in keys:
        text = str(value) if value != "" else "(none)"
        return text[:UUID_START] if text.startswith("GPU-") else text
    return figure(value, column["unit"])


def _greatest(rows: Sequence[Sequence[Any]], index: int) -> float:
    return max((abs(row[index]) for row in rows if isinstance(row[index], int | float)), default=0.0)


def _bar(value: Any, greatest: float) -> str:
    if not isinstance(value, int | float) or not greatest:
        return ""
    return "█" * round(abs(value) / greatest * BAR_WIDTH)
