"""Commands about what is missing: gaps, the ledger, and planned work. All go through the api, with a token."""

import argparse
import json
import sys
from typing import Any

from secondsight.administer.shell import AddCommand, AddServer, Commands, ask, group, say, send, show
from secondsight.errors import Rejected


def add_custody(commands: Commands, add: AddCommand, add_server: AddServer) -> None:
    """Add `gaps`, `ledger` and `maintenance`."""
    gaps = add(
        commands,
        "gaps",
        "show where rows are missing, and why",
        _gaps,
        "secondsight gaps --cluster cedar --from now-6h --reason findings",
    )
    gaps.add_argument("--gpu", default="", metavar="ID", help="only this GPU")
    gaps.add_argument("--kind", default="gpu", metavar="KIND", help="gpu, node or fabric_port (gpu)")
    gaps.add_argument(
        "--reason", default="", metavar="NAMES", help="only these reasons; findings: not the expected ones"
    )
    gaps.add_argument("--filled", action="store_true", help="gaps that a backlog closed, instead")
    gaps.add_argument("--stories", action="store_true", help="gaps of one reason at one time as one story")
    _add_range(gaps, "now-1h", add_server)
    _add_maintenance(commands, add, add_server)
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


def _add_maintenance(commands: Commands, add: AddCommand, add_server: AddServer) -> None:
    planned = group(commands, "maintenance", "planned work, in which nothing is expected of hosts")
    start = add(
        planned,
        "start",
        "announce planned work on a cluster, or on some of its hosts",
        _maintenance_start,
        "secondsight maintenance start --cluster cedar --host gpu-host-17 --minutes 90 --reason 'new NIC'",
    )
    start.add_argument("--cluster", required=True, metavar="ID")
    start.add_argument("--host", action="append", default=[], metavar="ID", help="one host; may stand several times")
    start.add_argument("--from", dest="from_time", default="now", metavar="TIME", help="when it begins (now)")
    start.add_argument("--until", default="", metavar="TIME", help="when it ends")
    start.add_argument("--minutes", type=float, metavar="N", help="how long it takes, instead of --until")
    start.add_argument("--reason", required=True, metavar="TEXT")
    listing = add(planned, "list", "list planned work", _maintenance_list, "secondsight maintenance list")
    listing.add_argument("--from", dest="from_time", default="now-1d", metavar="TIME")
    listing.add_argument("--to", dest="to_time", default="now+31d", metavar="TIME")
    listing.add_argument("--json", action="store_true", help="the answer as JSON")
    end = add(planned, "end", "end planned work now", _maintenance_end, "secondsight maintenance end 4f2a90c1b7d3")
    end.add_argument("window_id", metavar="WINDOW")
    for parser in (start, listing, end):
        add_server(parser)


def _add_range(parser: argparse.ArgumentParser, from_time: str, add_server: AddServer) -> None:
    for name in ("cluster", "host"):
        parser.add_argument(f"--{name}", default="", metavar="ID", help=f"only this {name}")
    parser.add_argument("--from", dest="from_time", default=from_time, metavar="TIME", help="RFC 3339, ms, or now-15m")
    parser.add_argument("--to", dest="to_time", default="now", metavar="TIME")
    parser.add_argument("--limit", default="200", metavar="N", help="rows (200)")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    add_server(parser)


def _gaps(arguments: argparse.Namespace) -> int:
    from secondsight.query.custody import print_gaps

    filters = {name: getattr(arguments, name) for name in ("cluster", "host", "gpu", "kind", "reason")}
    params = {**_range(arguments), **filters, "stories": "true" if arguments.stories else None}
    params["filled"] = "true" if arguments.filled else None
    body = ask(arguments, "/v1/telemetry/gaps", params)
    return print_gaps(body, sys.stdout, as_json=arguments.json)


def _maintenance_start(arguments: argparse.Namespace) -> int:
    if bool(arguments.until) == (arguments.minutes is not None):
        raise Rejected("bad_time", "planned work needs an end, and one alone", "give --minutes N or --until TIME")
    asked = {"cluster": arguments.cluster, "hosts": arguments.host, "reason": arguments.reason}
    ends = {"until": arguments.until} if arguments.until else {"minutes": arguments.minutes}
    told = send(arguments, "POST", "/v1/maintenance", {**asked, "start": arguments.from_time, **ends})
    for window in told["windows"]:
        say(f"{window['windowId']}: {_target(window)} from {window['start']} until {window['until']}")
    return 0


def _maintenance_list(arguments: argparse.Namespace) -> int:
    told = ask(arguments, "/v1/maintenance", {"from": arguments.from_time, "to": arguments.to_time})
    if arguments.json:
        return say(json.dumps(told, indent=2))
    shown = ("windowId", "active", "clusterId", "hostId", "start", "until", "reason", "announcedBy")
    return show(told["windows"], shown, as_json=False)


def _maintenance_end(arguments: argparse.Namespace) -> int:
    told = send(arguments, "DELETE", f"/v1/maintenance/{arguments.window_id}")
    return say(f"planned work on {_target(told)} has ended")


def _target(window: dict[str, Any]) -> str:
    return f"host {window['hostId']} in {window['clusterId']}" if window["hostId"] else f"cluster {window['clusterId']}"


def _ledger(arguments: argparse.Namespace) -> int:
    from secondsight.query.custody import print_ledger

    filters = {name: getattr(arguments, name) for name in ("cluster", "host", "collector")}
    params = {**_range(arguments), **filters, "unbalanced": "true" if arguments.unbalanced else None}
    body = ask(arguments, "/v1/ledger", params)
    return print_ledger(body, sys.stdout, as_json=arguments.json)


def _range(arguments: argparse.Namespace) -> dict[str, str | None]:
    return {"from": arguments.from_time, "to": arguments.to_time, "limit": arguments.limit}
