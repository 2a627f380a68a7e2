"""Commands about what is missing: gaps, the ledger, and planned work. All go through the api, with a token."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from secondsight.administer.shell import AddCommand, Commands

AddServer = Callable[[argparse.ArgumentParser], None]


def add_custody(commands: Commands, add: AddCommand, add_server: AddServer) -> None:
    """Add `ledger`."""
    ledger = add(
        commands,
        "ledger",
        "show what collectors told, minute by minute, and what became of it",
        _ledger,
        "secondsight ledger --host gpu-host-17 --from now-1h",
    )
    ledger.add_argument("--collector", default="", metavar="ID", help="only this collector")
    ledger.add_argument("--unbalanced", action="store_true", help="only minutes in which something does not add up")
    _add_range(ledger, "now-15m", add_server)


def _add_range(parser: argparse.ArgumentParser, from_time: str, add_server: AddServer) -> None:
    for name in ("cluster", "host"):
        parser.add_argument(f"--{name}", default="", metavar="ID", help=f"only this {name}")
    parser.add_argument("--from", dest="from_time", default=from_time, metavar="TIME", help="RFC 3339, ms, or now-15m")
    parser.add_argument("--to", dest="to_time", default="now", metavar="TIME")
    parser.add_argument("--limit", default="200", metavar="N", help="rows (200)")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    add_server(parser)


def _ledger(arguments: argparse.Namespace) -> int:
    from secondsight.query.custody import print_ledger

    filters = {name: getattr(arguments, name) for name in ("cluster", "host", "collector")}
    params = {**_range(arguments), **filters, "unbalanced": "true" if arguments.unbalanced else None}
    body = _get(arguments, "/v1/ledger", params)
    return print_ledger(body, sys.stdout, as_json=arguments.json)


def _range(arguments: argparse.Namespace) -> dict[str, str | None]:
    return {"from": arguments.from_time, "to": arguments.to_time, "limit": arguments.limit}


def _get(arguments: argparse.Namespace, path: str, params: dict[str, str | None]) -> Any:
    from secondsight.query.client import ApiClient, read_token

    client = ApiClient(arguments.server, read_token(Path(arguments.token_file)))
    try:
        return client.get_json(path, params)
    finally:
        client.close()
