"""The command that runs the whole platform on one machine."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from secondsight.administer.shell import AddCommand, Commands
from secondsight.clock import SystemClock
from secondsight.errors import Rejected

if TYPE_CHECKING:
    from secondsight.store.clickhouse.config import ClickHouseConfig

INCIDENT_NAMES = (
    "thermal_runaway, straggler, node_lost, ecc_storm, clock_drift, nvlink_degraded, dataloader_stall, "
    "network_partition or collector_restart"
)
DAY_SECONDS = 86_400
SMALL_FLEET_HOSTS = 32


def add_up(commands: Commands, add: AddCommand) -> None:
    """Add `up`."""
    example = "secondsight up --simulate 200x8 --data ./fleet --incident thermal_runaway"
    up = add(commands, "up", "run the whole platform on this machine", _up, example)
    up.add_argument("--data", type=Path, default=Path("data"), metavar="DIR", help="everything is kept here (./data)")
    up.add_argument("--listen", default="127.0.0.1:8470", metavar="HOST:PORT", help="port 0 picks a free one")
    up.add_argument("--simulate", default="12x8", metavar="HOSTSxGPUS", help="size of the simulated fleet (12x8), or 0")
    up.add_argument("--incident", action="append", default=[], metavar="NAME", help=f"after a minute: {INCIDENT_NAMES}")
    up.add_argument("--seed", type=int, default=1, help="the same seed repeats the same fleet")
    up.add_argument(
        "--history", default="15m", metavar="TIME", help="past of a new simulated fleet: 15m (default), 24h"
    )
    up.add_argument("--no-local-agent", action="store_true", help="do not collect from this machine")
    up.add_argument("--no-lake", action="store_true", help="do not keep what is stored in a lake of open files too")
    up.add_argument("--no-canary", action="store_true", help="do not send known series and read them back")
    up.add_argument(
        "--catalogue", action="append", type=Path, default=[], metavar="FILE", help="further metrics, for every part"
    )
    up.add_argument("--kafka", default="", metavar="BROKERS", help="keep the log in Kafka: HOST:PORT,HOST:PORT")
    up.add_argument("--clickhouse", default="", metavar="URL", help="keep the tables in a server: https://HOST:8443")
    up.add_argument("--clickhouse-user", default="default", metavar="NAME", help="who asks the server (default)")
    up.add_argument("--clickhouse-password-file", type=Path, metavar="FILE", help="file that holds the password")
    up.add_argument("--clickhouse-ca-file", type=Path, metavar="FILE", help="who signed the server's certificate")
    up.add_argument("--processors", type=int, default=1, metavar="N", help="processes that share the log of Kafka (1)")


def _up(arguments: argparse.Namespace) -> int:
    from secondsight.supervise import Supervisor, stop_on_signals
    from secondsight.up import UpOptions, parse_fleet, run_up

    host, _, port = arguments.listen.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65_535):
        raise Rejected("bad_listen", f"{arguments.listen!r} is not HOST:PORT", "for example 127.0.0.1:8470")
    fleet = None if arguments.simulate in ("0", "") else parse_fleet(arguments.simulate)
    is_small = fleet is not None and fleet[0] <= SMALL_FLEET_HOSTS
    options = UpOptions(
        data=arguments.data.resolve(),
        host=host.strip("[]") or "127.0.0.1",
        port=int(port),
        simulate=fleet,
        incidents=tuple(arguments.incident),
        seed=arguments.seed,
        history_seconds=_history_seconds(arguments.history or ("15m" if is_small else "0")),
        local_agent=not arguments.no_local_agent,
        kafka=arguments.kafka,
        clickhouse=_clickhouse(arguments),
        processors=arguments.processors,
        lake=not arguments.no_lake,
        canary=not arguments.no_canary,
        catalogue=tuple(arguments.catalogue),
    )
    clock = SystemClock()
    supervisor = Supervisor(options.data, clock, _say, dict(os.environ))
    stop_on_signals(supervisor)
    return 0 if run_up(options, clock, _say, supervisor) else 1


def _clickhouse(arguments: argparse.Namespace) -> "ClickHouseConfig | None":
    """Return the server that `up` was pointed at, if it was."""
    from secondsight.store.clickhouse.config import ClickHouseConfig

    if not arguments.clickhouse:
        return None
    files = arguments.clickhouse_password_file, arguments.clickhouse_ca_file
    return ClickHouseConfig(arguments.clickhouse, arguments.clickhouse_user, files[0], ca_file=files[1])


def _history_seconds(text: str) -> int:
    """Return the seconds of a width such as `15m`; a day at most, as coarser rollups do not exist yet."""
    units = {"s": 1, "m": 60, "h": 3600, "d": DAY_SECONDS}
    number, unit = text[:-1], text[-1:]
    if text == "0":
        return 0
    if not number.isdigit() or unit not in units:
        raise Rejected("bad_history", f"{text!r} is no width of time", "for example 15m, 24h or 0")
    seconds = int(number) * units[unit]
    if seconds > DAY_SECONDS:
        _say(f"history: one day is filled, not {text}: there are no rollups yet that keep more")
    return min(seconds, DAY_SECONDS)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
