"""Turn answers about what is missing into tables for a terminal."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from secondsight.query.terminal import UUID_START, console_of, exit_code

Body = Mapping[str, Any]
REASONS = (("shed", "shed"), ("quarantined", "quarantined"), ("deadLettered", "dead"))


def print_gaps(body: Body, out: TextIO, *, as_json: bool) -> int:
    """Print a page of gaps, or of stories; return 1 where a name that was given is of nothing, else 0."""
    found = "stories" if body["stories"] else "gaps"
    if as_json:
        out.write(json.dumps(body, indent=2) + "\n")
        return exit_code(body, found)
    console = console_of(out)
    if body["gaps"] or body["stories"]:
        console.print(gap_table(body["gaps"]) if body["stories"] is None else story_table(body["stories"]))
    console.print(gap_line(body), style="dim", highlight=False)
    return exit_code(body, found)


def gap_table(found: Sequence[Body]) -> Table:
    """Return gaps as a table; reasons that are no findings are dim."""
    table = _table("gaps: from the first missing row to the next one that is there")
    for name in ("cluster", "host", "entity"):
        table.add_column(name, overflow="fold")
    _time_columns(table)
    for gap in found:
        entity = str(gap["entityId"])
        short = entity[:UUID_START] if entity.startswith("GPU-") else entity
        table.add_row(*map(escape, (gap["clusterId"], gap["hostId"], short)), *_times(gap), style=_style(gap))
    return table


def story_table(found: Sequence[Body]) -> Table:
    """Return stories as a table."""
    table = _table("gaps of one reason at one time, at the level that they befell")
    for name in ("level", "where"):
        table.add_column(name, overflow="fold")
    table.add_column("entities", justify="right")
    _time_columns(table)
    for story in found:
        names = (story[name] for name in ("clusterId", "rack", "hostId", "entityId"))
        where = " / ".join(escape(name) for name in names if name)
        table.add_row(story["level"], where, f"{story['entities']:,}", *_times(story), style=_style(story))
    return table


def gap_line(body: Body) -> str:
    """Return one line that sums gaps up."""
    shown = len(body["gaps"]) or len(body["stories"] or ())
    reasons = ", ".join(f"{count} {reason}" for reason, count in body["reasons"].items())
    if not shown and not body["total"]:
        return "; ".join(["no gaps", *body["warnings"]])
    parts = [f"{shown} of {body['total']}", f"{body['missing']:,} slots missing, {body['shed']:,} of them shed"]
    return "; ".join([*parts, *([reasons] if reasons else []), *body["warnings"]])


def _time_columns(table: Table) -> None:
    table.add_column("from", no_wrap=True)
    for name in ("lasted", "missing"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("reason", no_wrap=True)


def _times(one: Body) -> tuple[str, str, str, str]:
    end = one["endTime"]
    start = one["startTime"]
    lasted = _width((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()) if end else "is open"
    return _clock(start), lasted, f"{one['expectedSamples']:,}", one["reason"]


def _clock(text: str) -> str:
    """Return month, day and time of day, in UTC."""
    return text[5:19].replace("T", " ")


def _width(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _style(one: Body) -> str:
    return "dim" if one["expected"] else ""


def print_ledger(body: Body, out: TextIO, *, as_json: bool) -> int:
    """Print a page of the ledger; return 1 where something does not add up or a name is of nothing, else 0."""
    if as_json:
        out.write(json.dumps(body, indent=2) + "\n")
    else:
        console = console_of(out)
        if body["entries"]:
            console.print(ledger_table(body))
        if body.get("short"):
            console.print(short_table(body["short"]))
        console.print(ledger_line(body), style="dim", highlight=False)
    is_lost = any(one["state"] == "lost" for one in body.get("short", ()))
    is_whole = all(entry["balanced"] for entry in body["entries"]) and not is_lost
    return exit_code(body, "entries") if is_whole else 1


def short_table(found: Sequence[Body]) -> Table:
    """Return the minutes of which less came than agents say; what waits or is declared is dim."""
    table = _table("minutes of which less came than the agent says that it sent")
    table.add_column("minute", no_wrap=True)
    table.add_column("agent", overflow="fold")
    table.add_column("kind", no_wrap=True)
    for name in ("said", "came", "missing"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("which is", no_wrap=True)
    for one in found:
        values = (f"{one[name]['values']:,}" for name in ("said", "came", "missing"))
        state = "LOST between agent and log" if one["state"] == "lost" else one["state"]
        where = escape(f"{one['clusterId']} / {one['collectorId']} on {one['hostId']}")
        style = "" if one["state"] == "lost" else "dim"
        table.add_row(_clock(one["minute"])[:-3], where, one["kind"], *values, state, style=style)
    return table


def ledger_table(body: Body) -> Table:
    """Return values by minute and collector."""
    table = _table("values by minute of event time and collector")
    table.add_column("minute", no_wrap=True)
    table.add_column("collector", overflow="fold")
    for name in ("produced", "stored", "in flight"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("not stored", overflow="fold")
    for entry in body["entries"]:
        table.add_row(
            _clock(entry["minute"])[:-3],
            escape(f"{entry['clusterId']} / {entry['collectorId']}"),
            *(f"{entry[name]['values']:,}" for name in ("produced", "stored", "inFlight")),
            "\n".join(_not_stored(entry)) or "-",
        )
    return table


def ledger_line(body: Body) -> str:
    """Return one line that sums a page up."""
    entries = body["entries"]
    wrong = sum(not entry["balanced"] for entry in entries)
    shown = f"{len(entries)} of {body['total']} minutes"
    records = sum(each["records"] for each in body.get("waiting", ()))
    spooled = f"; {records:,} records wait in spools of these hosts" if records else ""
    lost = sum(one["state"] == "lost" for one in body.get("short", ()))
    said = f"; of {body['said']:,} that agents said {lost} are not whole" if body.get("said") else ""
    balance = f"{shown}; {wrong} do not add up" if wrong else f"{shown}; all add up" if entries else "nothing was told"
    return "; ".join([balance + said + spooled, *body.get("warnings", ())])


def _not_stored(entry: Body) -> Iterator[str]:
    """Give what was not stored, by reason, and what does not add up."""
    for name, word in REASONS:
        for each in entry[name]:
            yield f"{each['values']:,} {word}: {escape(each['reason'])}"
    if not entry["balanced"]:
        reports = f"{entry['incidents']} reports" if entry["incidents"] else ""
        left = f"{entry['difference']['values']:,} values" if entry["difference"]["values"] else ""
        yield f"UNEXPLAINED: {', '.join(filter(None, (left, reports))) or 'more stored than told'}"


def _table(title: str) -> Table:
    return Table(
        title=escape(title),
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
