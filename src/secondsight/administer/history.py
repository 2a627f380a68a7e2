"""The command that takes history of other systems in."""

import argparse
import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from secondsight.administer.shell import AddCommand, Commands, say
from secondsight.errors import Rejected

if TYPE_CHECKING:
    from secondsight.administer.history_read import History

BAR_CELLS = 30


def add_history(forms: Commands, add: AddCommand) -> None:
    """Add `import history`."""
    importing = add(
        forms,
        "history",
        "send Prometheus text, API results or remote-write bodies, CSV or Parquet of the past through a gateway",
        _import,
        "secondsight import history range.json --to http://127.0.0.1:8470 --token-file data/tokens/collector",
    )
    importing.add_argument("files", nargs="+", type=Path, metavar="FILE")
    forms = ("prometheus", "openmetrics", "json", "remote-write", "csv", "parquet")
    importing.add_argument("--form", choices=forms, help=f"{', '.join(forms)}; else by the file's name")
    importing.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="for all series of it")
    importing.add_argument("--to", metavar="URL", help="gateway; without it the files are only looked at")
    importing.add_argument("--token-file", type=Path, metavar="FILE", help="file that holds a collector token")
    importing.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates to trust instead of the system's")
    importing.add_argument(
        "--state", type=Path, default=Path(), metavar="DIR", help="where it notes how far it came (.)"
    )


def _import(arguments: argparse.Namespace) -> int:
    from secondsight.administer.history_read import Form, form_of, read_history
    from secondsight.catalog.load import load_catalog

    if arguments.to and not arguments.token_file:
        raise Rejected("bad_config", "import: --to needs --token-file", "data/tokens/collector of `secondsight up`")
    catalog, labels = load_catalog(), _labels(arguments.label)
    ended = 0
    for path in arguments.files:
        form = Form(arguments.form) if arguments.form else form_of(path)
        history = read_history(path, form, catalog)
        for day, series in history.days.items():
            history.days[day] = {(name, tuple(sorted({*own, *labels}))): some for (name, own), some in series.items()}
        say(f"{path}: {history.samples:,} samples of {len(history.days)} days" + _left_out(history.refused))
        if arguments.to:
            ended = max(ended, _send(path, history, arguments))
    return ended


def _send(path: Path, history: "History", arguments: argparse.Namespace) -> int:
    from secondsight.administer.history_send import Journal, RemoteWriter, send_history
    from secondsight.agent.client.connection import Connection
    from secondsight.agent.client.secret import read_secret
    from secondsight.clock import SystemClock

    clock = SystemClock()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    state = arguments.state / f".import-{digest[:16]}-{hashlib.sha256(arguments.to.encode()).hexdigest()[:8]}"
    writer = RemoteWriter(
        Connection(arguments.to, clock, ca_file=arguments.ca_file), lambda: read_secret(arguments.token_file), clock
    )
    try:
        sent = send_history(history, writer, Journal(state, f"{digest} {arguments.label}"), show_progress)
    finally:
        writer.close()
        sys.stderr.write("\n")
    say(
        f"sent {sent.samples:,} samples in {sent.bodies} bodies"
        + (f", {sent.skipped:,} before" if sent.skipped else "")
    )
    for text, bodies in sorted(sent.refused.items()):
        say(f"refused in {bodies} bodies: {text}")
    say("what was refused is in `secondsight deadletters list`; the rest shows within a minute")
    return 1 if sent.refused and not sent.samples else 0


def show_progress(done: int, total: int, day: int) -> None:
    """Draw how far a long work has come, on standard error."""
    from secondsight.administer.retention import day as day_of

    cells = BAR_CELLS * done // max(total, 1)
    at = day_of(day * 86_400_000)
    sys.stderr.write(f"\r[{'#' * cells}{'.' * (BAR_CELLS - cells)}] {done / max(total, 1):4.0%} {at}")
    sys.stderr.flush()


def _labels(written: list[str]) -> tuple[tuple[str, str], ...]:
    pairs = [pair.partition("=") for pair in written]
    if not all(name and found for name, found, _ in pairs):
        raise Rejected("bad_config", "import: --label is NAME=VALUE", "for example --label Hostname=node-7")
    return tuple((name, value) for name, _, value in pairs)


def _left_out(refused: "dict[str, int]") -> str:
    told = ", ".join(f"{count:,} {reason}" for reason, count in sorted(refused.items()) if count)
    return f"; left out: {told}" if told else ""
