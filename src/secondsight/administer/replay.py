"""Commands that fill a store again: from the log, the lake or another store; and rollups from what is stored."""

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from secondsight.administer.history import BAR_CELLS
from secondsight.administer.shell import AddCommand, AddServer, Commands, now_ms, say, send
from secondsight.errors import Rejected

if TYPE_CHECKING:
    from secondsight.contracts import LogRecord, Store
    from secondsight.replay.again import Place


def add_replays(replay: argparse.ArgumentParser, add: AddCommand, add_server: AddServer) -> None:
    """Add `replay log`, `rollup`, `lake` and `store` to the command that sends dead letters again."""
    actions: Commands = replay.add_subparsers(
        title="actions", metavar="ACTION", required=False, parser_class=type(replay)
    )
    moving = add(
        actions,
        "store",
        "copy a running platform's tables into a ClickHouse server, while rows still come",
        _store,
        "secondsight replay store --data ./data --clickhouse https://HOST:8443 --clickhouse-password-file FILE",
    )
    restoring = add(
        actions,
        "lake",
        "write rows of the lake back into the store of a running platform, or into a server",
        _lake,
        "secondsight replay lake --from 2026-10-01T00:00Z --to 2026-10-03T00:00Z --tables gpu_1s,gpu_30s",
    )
    telling = add(
        actions,
        "log",
        "have frames that the log holds taken in once more, for a range of when they were admitted",
        _log,
        "secondsight replay log --from 2026-10-01T08:00Z --to 2026-10-01T10:00Z --token-file data/tokens/operator",
    )
    add_server(telling)
    telling.add_argument(
        "--config", type=Path, metavar="FILE", help="the gateway's settings: [gateway.kafka] says where the log is"
    )
    forcing = add(
        actions,
        "rollup",
        "have rollups of one resolution made again from what is stored, whatever changed",
        _rollup,
        "secondsight replay rollup --resolution 1h --from 2026-10-01T00:00Z --to 2026-10-03T00:00Z",
    )
    forcing.add_argument("--resolution", required=True, choices=("5m", "1h", "1d"))
    forcing.add_argument("--kind", default="gpu", metavar="KIND", help="of these entities (gpu)")
    for parser in (restoring, telling, forcing):
        parser.add_argument("--from", dest="from_time", required=True, metavar="TIME", help="RFC 3339, ms, or now-15d")
        parser.add_argument("--to", dest="to_time", required=True, metavar="TIME")
    for parser in (telling, forcing):
        parser.add_argument("--data", type=Path, default=Path("data"), metavar="DIR", help="the platform (./data)")
    for parser in (moving, restoring):
        parser.add_argument("--data", type=Path, default=Path("data"), metavar="DIR", help="the platform (./data)")
        parser.add_argument("--tables", default="", metavar="A,B", help="these alone")
        parser.add_argument("--clickhouse", default="", metavar="URL", help="server that is written to")
        parser.add_argument("--clickhouse-user", default="default", metavar="NAME")
        parser.add_argument("--clickhouse-password-file", type=Path, metavar="FILE")
        parser.add_argument("--clickhouse-ca-file", type=Path, metavar="FILE")
        parser.add_argument("--clickhouse-database", default="secondsight", metavar="NAME")
        parser.add_argument("--config", type=Path, metavar="FILE", help="settings: [retention] says where the lake is")


def _store(arguments: argparse.Namespace) -> int:
    from secondsight.catalog.load import load_catalog
    from secondsight.replay.journal import Journal
    from secondsight.replay.move import Mover, wanted_specs
    from secondsight.store.client import FlightStore
    from secondsight.store.schema import tables

    if not arguments.clickhouse:
        raise Rejected("bad_config", "replay store: --clickhouse is missing", "name the server to write to")
    source = FlightStore(arguments.data / "run" / "store.address")
    with _target(arguments) as target:
        mover = Mover(source, target, Journal(_journal(arguments, "store"), arguments.tables), show_pieces)
        try:
            passes = mover.run(wanted_specs(tables(load_catalog()), _names(arguments)))
        finally:
            source.close()
            sys.stderr.write("\n")
    return say(
        f"copied {mover.rows:,} rows in {passes} passes; run it again before the switch, it takes only what is new"
    )


def _log(arguments: argparse.Namespace) -> int:
    from collections import Counter

    from secondsight.replay.again import places_between, tell_again
    from secondsight.replay.journal import Journal

    from_ms, to_ms = _range(arguments)
    outcomes = Counter[str]()
    places = list(places_between(_records(arguments, from_ms), from_ms, to_ms))

    def send_some(some: "Sequence[Place]") -> None:
        outcomes.update(
            send(arguments, "POST", "/v1/log/replay", {"records": [list(place) for place in some]})["outcomes"]
        )

    journal = Journal(arguments.data / "run" / "replay-log.json", f"{from_ms} {to_ms} {arguments.server}")
    told = tell_again(places, send_some, journal, show_pieces)
    journal.end()
    if places:
        sys.stderr.write("\n")
    left = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items()) if outcome != "replayed")
    return say(f"told {told:,} of {len(places):,} frames once more" + (f"; left out: {left}" if left else ""))


def _records(arguments: argparse.Namespace, from_ms: int) -> "Iterator[LogRecord]":
    """Give the records of the log that the gateway's settings name; without settings those of the platform's."""
    from secondsight.clock import SystemClock
    from secondsight.config import build, read_settings
    from secondsight.gateway.config import GatewayConfig
    from secondsight.replay.again import records_of_brokers, records_of_files

    own = arguments.data / "run" / "config.toml"
    path = arguments.config or (own if own.exists() else None)
    settings = {"data": arguments.data} | read_settings(path, os.environ, "gateway")
    kafka = build(GatewayConfig, settings, "gateway").kafka
    if kafka is not None:
        return records_of_brokers(kafka, from_ms)
    return records_of_files(arguments.data / "log", SystemClock())


def _rollup(arguments: argparse.Namespace) -> int:
    from secondsight.catalog.load import load_catalog
    from secondsight.model import EntityKind
    from secondsight.replay.force import Forcer
    from secondsight.store.client import FlightStore
    from secondsight.store.coarse import LEVELS
    from secondsight.store.schema import tables

    kinds = {kind.value: kind for kind in EntityKind}
    if arguments.kind not in kinds:
        raise Rejected("bad_kind", f"{arguments.kind!r} is no kind of entity", f"one of {', '.join(kinds)}")
    (level,) = [level for level in LEVELS if level.name == arguments.resolution]
    (notes,) = [spec for spec in tables(load_catalog()) if spec.name == "rollups_made"]
    store = FlightStore(arguments.data / "run" / "store.address")
    try:
        forced = Forcer(store, notes, show_pieces).run(kinds[arguments.kind], level, _range(arguments), now_ms())
    finally:
        store.close()
    if forced:
        sys.stderr.write("\n")
    return say(f"{forced:,} windows of {arguments.resolution} will be made again within a minute, with their clusters'")


def _range(arguments: argparse.Namespace) -> tuple[int, int]:
    """Return the range asked for, epoch ms.

    Raises:
        Rejected(bad_time): It is none.
    """
    from secondsight.query.times import parse_time

    from_ms, to_ms = (parse_time(text, now_ms()) for text in (arguments.from_time, arguments.to_time))
    if from_ms >= to_ms:
        raise Rejected("bad_time", "the range is empty: --from must be before --to", "swap them, or widen the range")
    return from_ms, to_ms


def _lake(arguments: argparse.Namespace) -> int:
    from secondsight.catalog.load import load_catalog
    from secondsight.config import build, read_settings
    from secondsight.lake.layout import lake_tables
    from secondsight.lake.tables import open_lake
    from secondsight.replay.journal import Journal
    from secondsight.replay.move import wanted_specs
    from secondsight.replay.restore import Restorer
    from secondsight.retire.config import RetentionConfig
    from secondsight.store.retention import RETIRABLE
    from secondsight.store.schema import tables

    from_ms, to_ms = _range(arguments)
    settings = {"data": arguments.data} | read_settings(arguments.config, os.environ, "retention")
    config = build(RetentionConfig, settings, "retention")
    names = _names(arguments) or tuple(RETIRABLE)
    shapes = lake_tables(wanted_specs(tables(load_catalog()), names).values())
    lake = open_lake(config.catalog, config.data)
    what = f"{from_ms} {to_ms} {arguments.tables}"
    with _target(arguments) as target:
        journal = Journal(_journal(arguments, "lake"), what)
        restorer = Restorer(lake, target, journal, show_pieces)
        try:
            for shape in shapes.values():
                restorer.run(shape, from_ms, to_ms)
        finally:
            lake.close()
            sys.stderr.write("\n")
        journal.end()
    return say(f"wrote {restorer.rows:,} rows")


@contextmanager
def _target(arguments: argparse.Namespace) -> "Iterator[Store]":
    """Give the store that is written to, with its tables."""
    from secondsight.catalog.load import load_catalog
    from secondsight.clock import SystemClock
    from secondsight.store.client import FlightStore

    if not arguments.clickhouse:
        flight = FlightStore(arguments.data / "run" / "store.address")
        try:
            yield flight
        finally:
            flight.close()
        return
    from secondsight.store.clickhouse.config import ClickHouseConfig
    from secondsight.store.clickhouse.store import ClickHouseStore
    from secondsight.store.migrate import migrate

    config = ClickHouseConfig(
        arguments.clickhouse,
        arguments.clickhouse_user,
        arguments.clickhouse_password_file,
        arguments.clickhouse_database,
        ca_file=arguments.clickhouse_ca_file,
    )
    store = ClickHouseStore(config, 2, clock=SystemClock())
    try:
        migrate(store, load_catalog(), config.database, store.deployment)
        yield store
    finally:
        store.close()


def show_pieces(table: str, done: int, total: int) -> None:
    """Draw how far a table has come, on standard error."""
    cells = BAR_CELLS * done // max(total, 1)
    sys.stderr.write(f"\r[{'#' * cells}{'.' * (BAR_CELLS - cells)}] {done}/{total} {table:<40.40}")
    sys.stderr.flush()


def _journal(arguments: argparse.Namespace, what: str) -> Path:
    digest = hashlib.sha256(f"{arguments.clickhouse} {arguments.clickhouse_database}".encode()).hexdigest()[:8]
    folder: Path = arguments.data / "run"
    return folder / f"replay-{what}-{digest}.json"


def _names(arguments: argparse.Namespace) -> tuple[str, ...]:
    return tuple(name for name in arguments.tables.split(",") if name)
