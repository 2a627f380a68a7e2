"""Turn answers about what is missing into tables for a terminal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Body = Mapping[str, Any]
REASONS = (("shed", "shed"), ("quarantined", "quarantined"), ("deadLettered", "dead letters"))


def print_ledger(body: Body, out: TextIO, *, as_json: bool) -> int:
    """Print a page of the ledger; return 1 where something does not add up, else 0."""
    if as_json:
        out.write(json.dumps(body, indent=2) + "\n")
    else:
        console = Console(file=out)
        console.print(ledger_table(body))
        console.print(ledger_line(body), style="dim", highlight=False)
    return 0 if all(entry["balanced"] for entry in body["entries"]) else 1


def ledger_table(body: Body) -> Table:
    """Return values by minute and collector."""
    table = _table("values by minute of event time and collector")
    for name in ("minute", "cluster", "collector"):
        table.add_column(name, no_wrap=name == "minute", overflow="fold")
    for name in ("produced", "stored", "in flight", *(word for _, word in REASONS)):
        table.add_column(name, justify="right")
    table.add_column("adds up")
    for entry in body["entries"]:
        table.add_row(
            entry["minute"][:16].replace("T", " "),
            escape(entry["clusterId"]),
            escape(entry["collectorId"]),
            *(f"{entry[name]['values']:,}" for name in ("produced", "stored", "inFlight")),
            *(_by_reason(entry[name]) for name, _ in REASONS),
            _balance(entry),
        )
    return table


def ledger_line(body: Body) -> str:
    """Return one line that sums a page up."""
    entries = body["entries"]
    wrong = sum(not entry["balanced"] for entry in entries)
    shown = f"{len(entries)} of {body['total']} minutes"
    return f"{shown}; {wrong} do not add up" if wrong else f"{shown}; all add up"


def _by_reason(found: Sequence[Body]) -> str:
    return "\n".join(f"{each['values']:,} {escape(each['reason'])}" for each in found) or "-"


def _balance(entry: Body) -> str:
    if entry["balanced"]:
        return "yes"
    reports = f"{entry['incidents']} reports" if entry["incidents"] else ""
    left = f"{entry['difference']['values']:,} values" if entry["difference"]["values"] else ""
    return f"NO: {', '.join(filter(None, (left, reports))) or 'more stored than told'}"


def _table(title: str) -> Table:
    return Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
