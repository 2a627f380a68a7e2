"""Commands about retention: what the hot store keeps, what it would let go of, and the stage that does it."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondsight.administer.planned import parse_days, size
from secondsight.administer.shell import AddCommand, Commands, audit, group, metadata, now_ms, place, say, show
from secondsight.errors import Rejected

if TYPE_CHECKING:
    from secondsight.access.retention import KeepRule
    from secondsight.contracts import Store
    from secondsight.retire.rules import Partition

_SHOWN = ("table", "retention_class", "keep", "from", "to", "floor", "partitions", "rows", "bytes")
_LOST = ("table", "retention_class", "from", "to", "partitions", "rows", "bytes")


def add_retention(commands: Commands, add: AddCommand) -> None:
    """Add `retention`."""
    actions = group(commands, "retention", "how long the hot store keeps rows, and the stage that lets go of them")
    showing = add(
        actions, "show", "show what is kept, and how much of it there is", _show, "secondsight retention show"
    )
    setting = add(
        actions,
        "set",
        "change how long rows are kept; says first what that deletes from the hot store",
        _set,
        "secondsight retention set 1s=14d,30s=30d --dry-run",
    )
    setting.add_argument(
        "kept", metavar="1s=14d,...", help="width by resolution or table; `forever` keeps, 2d is the least"
    )
    setting.add_argument("--class", dest="retention_class", type=int, metavar="N", help="only rows of this class")
    setting.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    setting.add_argument("--yes", action="store_true", help="change it")
    for parser in (showing, setting):
        place(parser)
        parser.add_argument(
            "--config", type=Path, metavar="FILE", help="settings of the stage, where data is elsewhere"
        )
        parser.add_argument("--json", action="store_true", help="as JSON")
    running = add(
        actions,
        "run",
        "drop partitions that are older than is kept, once the lake has them",
        _run,
        "secondsight retention run --config secondsight.toml",
    )
    running.add_argument("--config", type=Path, metavar="FILE", help="TOML file; SECONDSIGHT_* overrides it")


def _show(arguments: argparse.Namespace) -> int:
    from secondsight.access.retention import read_floors, read_rules
    from secondsight.retire.rules import days_kept

    with metadata(arguments) as engine:
        rules, floors = read_rules(engine), read_floors(engine)
    rows = []
    for some in _by_class(_partitions(arguments)):
        first = some[0]
        days = days_kept(first.table, first.retention_class, rules)
        floor_ms = floors.get(first.table)
        words = {
            "keep": "forever" if days is None else f"{days:g}d",
            "floor": "" if floor_ms is None else day(floor_ms),
        }
        rows.append(_summed(some) | words)
    return show(rows, _SHOWN, as_json=arguments.json)


def _set(arguments: argparse.Namespace) -> int:
    from secondsight.access.retention import EVERY_CLASS, read_rules, set_rule
    from secondsight.retire.rules import is_due, with_rule

    retention_class = EVERY_CLASS if arguments.retention_class is None else arguments.retention_class
    asked = parse_rules(arguments.kept, retention_class)
    with metadata(arguments) as engine:
        rules = before = read_rules(engine)
        for rule in asked:
            rules = with_rule(rules, rule)
        now = now_ms()
        found = _partitions(arguments)
        lost = [each for each in found if is_due(each, rules, now) and not is_due(each, before, now)]
        rows = [_summed(some) for some in _by_class(lost)]
        if rows or arguments.json:
            say("" if arguments.json else "this lets the hot store delete, once the lake has it:\n")
            show(rows, _LOST, as_json=arguments.json)
        else:
            say("nothing of what is stored is deleted by this")
        if arguments.dry_run:
            return 0
        if not arguments.yes:
            say("\nnothing was changed; say --yes to do it")
            return 1
        for rule in asked:
            set_rule(engine, rule, now)
        audit(engine, arguments.tenant, "retention.set", arguments.kept)
    return say("changed; the stage of retention follows within minutes")


def _run(arguments: argparse.Namespace) -> int:
    import signal
    import threading

    from secondsight.clock import SystemClock
    from secondsight.config import build, read_settings
    from secondsight.retire.config import RetentionConfig
    from secondsight.retire.serve import serve_retention

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    settings = read_settings(arguments.config, os.environ, "retention")
    serve_retention(build(RetentionConfig, settings, "retention"), SystemClock(), stop)
    return 0


def parse_rules(text: str, retention_class: int) -> "list[KeepRule]":
    """Return the rules of a text such as `1s=14d,gpu_30s=forever`.

    Raises:
        Rejected(bad_retention): It is something else.
    """
    from secondsight.access.retention import KeepRule

    made = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, found, width = piece.partition("=")
        if not found:
            raise Rejected("bad_retention", f"{piece!r} is no NAME=WIDTH", "for example 1s=14d or gpu_1s=forever")
        made.append(KeepRule(name, retention_class, None if width == "forever" else parse_days(width)))
    if not made:
        raise Rejected("bad_retention", "nothing is named", "for example 1s=14d")
    return made


def day(time_ms: int) -> str:
    """Return the UTC day of an instant."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d")


def _partitions(arguments: argparse.Namespace) -> "list[Partition]":
    from secondsight.retire.rules import partitions_of
    from secondsight.store.retention import hot_parts

    store = _store(arguments)
    try:
        return partitions_of(hot_parts(store))
    finally:
        store.close()


def _store(arguments: argparse.Namespace) -> "Store":
    """Return the store that settings name, or that of the platform's folder."""
    from secondsight.clock import SystemClock
    from secondsight.config import build, read_settings
    from secondsight.retire.config import RetentionConfig
    from secondsight.store.reach import reach_store

    settings = {"data": arguments.data} | read_settings(arguments.config, os.environ, "retention")
    config = build(RetentionConfig, settings, "retention")
    return reach_store(config.store_address, config.clickhouse, SystemClock())


def _by_class(partitions: "Sequence[Partition]") -> "list[list[Partition]]":
    found: dict[tuple[str, int], list[Partition]] = {}
    for each in partitions:
        found.setdefault((each.table, each.retention_class), []).append(each)
    return list(found.values())


def _summed(partitions: "Sequence[Partition]") -> dict[str, Any]:
    return {
        "table": partitions[0].table,
        "retention_class": partitions[0].retention_class,
        "from": day(min(each.start_ms for each in partitions)),
        "to": day(max(each.end_ms for each in partitions)),
        "partitions": len(partitions),
        "rows": sum(each.rows for each in partitions),
        "bytes": size(sum(each.size_bytes for each in partitions)),
    }
