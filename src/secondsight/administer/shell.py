"""What the commands of administration share: parsers, the metadata store, the api, the audit, and how rows are shown.

Tokens, plans and stages are kept in the metadata store, and the commands open it where it is: they run beside the
platform, by whoever may read its folder. Others go through the api, with a token. Nothing of the platform is imported
before its command runs.
"""

import argparse
import getpass
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondsight.clock import SystemClock
from secondsight.errors import Rejected

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from secondsight.query.client import ApiClient

Commands = Any
"""What `argparse` gives for sub-commands; its parsers are those of `cli`."""

AddCommand = Callable[[Commands, str, str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
AddServer = Callable[[argparse.ArgumentParser], None]
"""Adds the options that say where the api is, and which token it is asked with."""

ABSENT = "-"


def group(commands: Commands, name: str, text: str) -> Commands:
    """Add a command that only has actions, and return where these are added."""
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(title="actions", metavar="ACTION", required=True, parser_class=type(parser))


def place(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the metadata store is, and whose things are meant."""
    parser.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="folder of the platform (./data)"
    )
    parser.add_argument("--metadata", default="", metavar="URL", help="metadata store, where it is not in that folder")
    parser.add_argument("--tenant", default="default", metavar="ID")


@contextmanager
def metadata(arguments: argparse.Namespace) -> "Iterator[Engine]":
    """Give the metadata store, which must be there already."""
    from secondsight.access.metadata import open_metadata

    path = arguments.data / "metadata.sqlite"
    if not arguments.metadata and not path.is_file():
        raise Rejected("bad_data", f"there is no platform in {arguments.data}", "name its folder with --data")
    engine = open_metadata(arguments.metadata or str(path))
    try:
        yield engine
    finally:
        engine.dispose()


def ask(arguments: argparse.Namespace, path: str, params: Mapping[str, str | None]) -> Any:
    """Return what the api answers to a GET; parameters without a value are left out.

    Raises:
        Rejected, Retryable: As the api says.
    """
    with _api(arguments) as client:
        return client.get_json(path, params)


def send(arguments: argparse.Namespace, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return what the api answers to a request with a body.

    Raises:
        Rejected, Retryable: As the api says.
    """
    with _api(arguments) as client:
        return client.send_json(method, path, body)


def send_text(arguments: argparse.Namespace, method: str, path: str, body: Mapping[str, Any], accept: str) -> str:
    """Return what the api answers to a request with a body, as text of a type.

    Raises:
        Rejected, Retryable: As the api says.
    """
    with _api(arguments) as client:
        return client.send_text(method, path, body, accept)


@contextmanager
def _api(arguments: argparse.Namespace) -> "Iterator[ApiClient]":
    from secondsight.query.client import ApiClient, read_token

    client = ApiClient(arguments.server, read_token(arguments.token_file))
    try:
        yield client
    finally:
        client.close()


def audit(engine: "Engine", tenant_id: str, action: str, detail: str) -> None:
    """Put on record what was done at this shell."""
    from secondsight.access.audit import AuditEntry, write_entries

    write_entries(engine, [AuditEntry(now_ms(), f"shell:{getpass.getuser()}", tenant_id, action, "ok", detail)])


def now_ms() -> int:
    """Return the time."""
    return SystemClock().now_ms()


def show(rows: Sequence[dict[str, Any]], shown: Sequence[str], *, as_json: bool) -> int:
    """Print rows as a table of some columns, one below the other where a terminal is too narrow, or whole as JSON."""
    if as_json:
        return say(json.dumps(rows, indent=2, default=str))
    names = [re.sub("(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("_ms")).upper() for name in shown]
    cells = [[_text(name, row.get(name)) for name in shown] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    room = shutil.get_terminal_size().columns
    if rows and sys.stdout.isatty() and sum(widths) + 2 * (len(widths) - 1) > room:
        return say("\n\n".join(_record(names, line, room) for line in cells) + "\n")
    for line in (names, *cells):
        say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    return 0


def _record(names: Sequence[str], line: Sequence[str], room: int) -> str:
    """Return what a row has, each on lines of its own; words stay whole, so that ids can be copied."""
    width = max(map(len, names)) + 2
    told = [(name.ljust(width), text) for name, text in zip(names, line, strict=True) if text != ABSENT]
    wrap = partial(textwrap.fill, width=room, subsequent_indent=" " * width)
    return "\n".join(
        wrap(text, initial_indent=name, break_long_words=False, break_on_hyphens=False) for name, text in told
    )


def _text(name: str, value: Any) -> str:
    if name in ("expires_ms", "revoked_ms", "disabled_ms") and value is not None:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or ABSENT
    if value in (None, ""):
        return ABSENT
    return plain(str(value))


def plain(text: str) -> str:
    """Return a text of others as a terminal may show it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def say(text: str) -> int:
    """Print a line and return the exit code of success."""
    sys.stdout.write(text + "\n")
    return 0
