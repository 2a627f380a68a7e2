"""The command that asks in SQL. It goes through the api, with a token, and through the guard as all SQL does."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from secondsight.administer.shell import AddCommand, AddServer, Commands, ask, say, send, send_text, show
from secondsight.config import build, read_settings
from secondsight.errors import Rejected

CSV_TYPE = "text/csv"
CELL_LENGTH_MAXIMUM = 60
_SHOWN = ("name", "type", "unit", "legal", "description")


def add_sql(commands: Commands, add: AddCommand, add_server: AddServer) -> None:
    """Add `sql`."""
    sql = add(
        commands,
        "sql",
        "ask in SQL over the curated views, within your grants",
        _sql,
        'secondsight sql "SELECT host_id, max(gpu_temperature_celsius_max) AS hot FROM gpu_telemetry_30s_secure '
        'WHERE window_start >= now() - INTERVAL 1 HOUR GROUP BY host_id ORDER BY hot DESC LIMIT 10"',
    )
    sql.add_argument("statement", nargs="?", default="-", metavar="SQL", help="one SELECT; - reads standard input")
    what = sql.add_mutually_exclusive_group()
    what.add_argument("--views", nargs="?", const="", metavar="VIEW", help="list the views, or the columns of one")
    what.add_argument("--wall", action="store_true", help="print what guards SQL on a ClickHouse server, as DDL")
    what.add_argument("--replay", metavar="ID", help="ask a question of the audit again (admins)")
    form = sql.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the whole answer as JSON")
    form.add_argument("--csv", action="store_true", help="the rows as CSV")
    sql.add_argument("--tenant", default="", metavar="ID", help="only what you may see of this tenant")
    sql.add_argument("--config", type=Path, metavar="FILE", help="TOML file with [api], for --wall")
    add_server(sql)


def _sql(arguments: argparse.Namespace) -> int:
    if arguments.wall:
        return _wall(arguments)
    if arguments.views is not None:
        return _views(arguments)
    if arguments.replay is not None:
        return _replay(arguments)
    text = sys.stdin.read() if arguments.statement == "-" else arguments.statement
    body = {"sql": text, "tenant": arguments.tenant}
    if arguments.csv:
        sys.stdout.write(send_text(arguments, "POST", "/v1/sql", body, CSV_TYPE))
        return 0
    answer = send(arguments, "POST", "/v1/sql", body)
    return say(json.dumps(answer, indent=2)) if arguments.json else _table(answer)


def _replay(arguments: argparse.Namespace) -> int:
    answer = send(arguments, "POST", f"/v1/audit/questions/{arguments.replay}/replay")
    if arguments.json:
        return say(json.dumps(answer, indent=2))
    was = answer["was"]
    say(f"asked {was['time']} by {was['subject']}: {was['outcome']}\n{was['sql']}\n")
    same = {True: "the rows are those of then", False: "the rows are others than then", None: "there were no rows then"}
    _table(answer["result"])
    return say(same[answer["same"]])


def _wall(arguments: argparse.Namespace) -> int:
    from secondsight.api.config import ApiConfig
    from secondsight.catalog.load import load_catalog
    from secondsight.store.clickhouse.config import ClickHouseConfig
    from secondsight.store.clickhouse.wall import Wall, wall_statements
    from secondsight.store.deployment import Deployment

    settings = {"data": "data", **read_settings(arguments.config, os.environ, "api")}
    config = build(ApiConfig, settings, "api")
    server = config.clickhouse or ClickHouseConfig("http://127.0.0.1:8123", user="secondsight_reader")
    budget = config.sql
    wall = Wall(
        asker=server.question_user or "secondsight_questions",
        reader=server.view_user or "secondsight_views",
        killer=server.user,
        seconds=budget.seconds,
        memory_bytes=budget.memory_bytes,
        read_rows=budget.read_rows,
        threads=budget.threads,
        daily_questions=budget.daily_questions_per_tenant,
        daily_rows=budget.daily_rows_per_tenant,
        daily_seconds=budget.daily_seconds_per_tenant,
    )
    deployment = Deployment(server=True, cluster=server.cluster)
    statements = wall_statements(load_catalog(config.catalogue), server.database, wall, deployment)
    return say(";\n".join(statements) + ";")


def _views(arguments: argparse.Namespace) -> int:
    views = ask(arguments, "/v1/sql/views", {})["views"]
    if not arguments.views:
        rows = [{**view, "columns": len(view["columns"])} for view in views]
        return show(rows, ("name", "columns", "description"), as_json=arguments.json)
    found = [view for view in views if view["name"] == arguments.views]
    if not found:
        raise Rejected("unknown_view", f"there is no view {arguments.views!r}", "secondsight sql --views lists them")
    return show(found[0]["columns"], _SHOWN, as_json=arguments.json)


def _table(answer: dict[str, Any]) -> int:
    """Print rows as a table with the units beside the names, then what they are worth."""
    columns = answer["columns"]
    names = [f"{one['name']} [{one['unit']}]" if one["unit"] not in ("", "1") else one["name"] for one in columns]
    _lines(names, [[_text(cell) for cell in row] for row in answer["rows"]])
    for warning in answer["warnings"]:
        say(f"note: {warning}")
    more = " and more" if answer["truncated"] else ""
    cost = f"{answer['rowsRead']} rows read in {answer['milliseconds']} ms"
    return say(f"{answer['rowCount']} rows{more}; {cost}; question {answer['questionId']}")


def _lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for line in (names, *rows):
        say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _text(cell: Any) -> str:
    """Return a cell on one line, which does nothing to the terminal."""
    whole = "-" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    text = "".join(letter if letter.isprintable() else "?" for letter in whole)
    return text if len(text) <= CELL_LENGTH_MAXIMUM else f"{text[: CELL_LENGTH_MAXIMUM - 1]}…"
