"""The command that says what a site of a given size costs."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from secondsight.administer.capacity import HOT_DAYS, Capacity, Site, as_rows, capacity, read_constants
from secondsight.administer.shell import Commands, say, show
from secondsight.errors import Rejected

BYTES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_UNITS_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "y": 365.0}
_DRIVERS_SHOWN = 6
_EXAMPLE = "secondsight plan --hosts 1250 --gpus 8 --metrics 100 --retention 1s=14d,30s=30d"


def add_capacity(commands: Commands) -> Commands:
    """Add `plan`, and return where its actions are added."""
    text = "what a site costs; with an action, how often agents sample and which metrics"
    plan = commands.add_parser(
        "plan",
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"example:\n  {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plan.add_argument("--hosts", type=int, metavar="N", help="hosts of the site")
    plan.add_argument("--gpus", type=int, default=8, metavar="N", help="GPUs of a host (8)")
    plan.add_argument("--metrics", type=int, default=100, metavar="N", help="metrics of a GPU (100)")
    plan.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="cadence (1)")
    plan.add_argument("--clusters", type=int, default=1, metavar="N", help="clusters that they are divided into (1)")
    plan.add_argument("--retention", default="", metavar="1s=14d,...", help="what the hot store keeps, by resolution")
    plan.add_argument("--no-lake", action="store_true", help="without a lake")
    plan.add_argument("--json", action="store_true", help="everything as JSON")
    plan.add_argument("--constants", action="store_true", help="the measured figures behind it, with their sources")
    plan.set_defaults(command=_capacity)
    return plan.add_subparsers(title="actions", metavar="ACTION", required=False, parser_class=type(plan))


def parse_kept(text: str) -> dict[str, float | None]:
    """Return resolution -> days, None for ever, of a text such as `1s=14d,1d=forever`; `14d` alone is of seconds.

    Raises:
        Rejected(bad_retention): It is something else.
    """
    kept: dict[str, float | None] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, width = piece.rpartition("=")
        name = name or "1s"
        if name not in HOT_DAYS:
            raise Rejected("bad_retention", f"{name!r} is no stored resolution", f"one of {', '.join(HOT_DAYS)}")
        kept[name] = None if width == "forever" else parse_days(width)
    return kept


def parse_days(width: str) -> float:
    """Return the days of a width such as `14d`, `12h` or `3y`.

    Raises:
        Rejected(bad_retention): It is none.
    """
    number, unit = width[:-1], width[-1:]
    if unit not in _UNITS_DAYS or not (number.isascii() and number.isdecimal() and int(number)):
        raise Rejected("bad_retention", f"{width!r} is no width of time", "for example 14d, 12h, 3y or forever")
    return int(number) * _UNITS_DAYS[unit]


def _capacity(arguments: argparse.Namespace) -> int:
    constants = read_constants()
    if arguments.constants:
        rows = [{"name": name, **asdict(constant)} for name, constant in constants.items()]
        return show(rows, ("name", "value", "unit", "meaning", "source"), as_json=arguments.json)
    if arguments.hosts is None:
        raise Rejected("bad_site", "--hosts is missing", f"for example {_EXAMPLE}")
    site = Site(
        hosts=arguments.hosts,
        gpus_per_host=arguments.gpus,
        metrics=arguments.metrics,
        interval_seconds=arguments.interval,
        clusters=arguments.clusters,
        hot_days=parse_kept(arguments.retention),
        lake=not arguments.no_lake,
    )
    found = capacity(site, constants)
    return say(json.dumps(as_json(found), indent=2)) if arguments.json else _print(found)


def as_json(found: Capacity) -> dict[str, Any]:
    """Return a capacity as JSON."""
    return asdict(found) | {"total_cores": found.total_cores}


def size(count: float) -> str:
    """Return bytes in the decimal unit that suits."""
    position = 0
    while abs(count) >= 1000 and position < len(BYTES) - 1:
        count, position = count / 1000, position + 1
    return f"{count:.3g} {BYTES[position]}"


def _print(found: Capacity) -> int:
    say(
        f"{found.gpus:,} GPUs, {found.values_a_second:,.0f} values/s in {found.requests_a_second:,.0f} requests/s of"
        f" {size(found.ingest_bytes_a_second)}/s; the log holds {size(found.log_bytes)}\n"
    )
    rows = [
        row
        | {
            "rows_a_day": f"{row['rows_a_day']:,.0f}",
            "bytes_a_day": size(float(str(row["bytes_a_day"]))),
            "kept": "forever" if row["kept_days"] is None else f"{row['kept_days']:g} d",
            "bytes": size(float(str(row["total_bytes"]))),
            "files_a_day": f"{row['files_a_day']:.3g}",
        }
        for row in as_rows(found.tiers)
    ]
    show(rows, ("tier", "resolution", "rows_a_day", "bytes_a_day", "kept", "bytes", "files_a_day"), as_json=False)
    say("")
    needs = [{"part": part, "needs": f"{count:,}"} for part, count in found.machines.items() if count]
    needs += [{"part": f"cores: {stage}", "needs": f"{cores:.2f}"} for stage, cores in found.cores.items()]
    needs += [{"part": f"memory: {part}", "needs": size(held)} for part, held in found.memory_bytes.items()]
    if found.kafka_partitions:
        needs.append({"part": "partitions of the log", "needs": str(found.kafka_partitions)})
    show(needs, ("part", "needs"), as_json=False)
    say("\nwhat costs most:")
    for what, share in found.drivers[:_DRIVERS_SHOWN]:
        say(f"  {share:>4.0%}  {what}")
    return say("\nwhat is kept for ever is counted for three years; `--constants` has the figures and their sources")
