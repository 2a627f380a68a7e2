"""Commands about debug sessions. All but the budget go through the api, with a token."""

import argparse
import json

from secondsight.administer.shell import (
    AddCommand,
    AddServer,
    Commands,
    ask,
    audit,
    group,
    metadata,
    place,
    say,
    send,
    show,
)
from secondsight.errors import Rejected


def add_debug(commands: Commands, add: AddCommand, add_server: AddServer) -> None:
    """Add `debug`."""
    debug = group(commands, "debug", "every second of something for a while")
    start = add(
        debug,
        "start",
        "sample a host, GPU, job or cluster every second for a while",
        _debug_start,
        "secondsight debug start --host gpu-host-17 --minutes 15 --back 10",
    )
    for name in ("cluster", "host", "gpu", "job"):
        start.add_argument(f"--{name}", default="", metavar="ID")
    start.add_argument("--minutes", type=float, default=15, metavar="N", help="how long (15)")
    start.add_argument("--back", type=float, default=0, metavar="N", help="minutes before, as far as hosts have them")
    listing = add(
        debug, "list", "list debug sessions and what is left of the budget", _debug_list, "secondsight debug list"
    )
    listing.add_argument("--json", action="store_true", help="as JSON")
    stop = add(debug, "stop", "end a debug session now", _debug_stop, "secondsight debug stop 4f2a90c1b7d3")
    stop.add_argument("session_id", metavar="SESSION")
    for parser in (start, listing, stop):
        add_server(parser)
    budget = add(
        debug,
        "budget",
        "say what a tenant's sessions may add, in values a second",
        _debug_budget,
        "secondsight debug budget 50000",
    )
    budget.add_argument("values", metavar="N|default", help="values a second, or default for the api's setting")
    place(budget)


def _debug_start(arguments: argparse.Namespace) -> int:
    asked = {name: getattr(arguments, name) for name in ("cluster", "host", "gpu", "job") if getattr(arguments, name)}
    asked |= {"minutes": arguments.minutes, "backMinutes": arguments.back}
    told = send(arguments, "POST", "/v1/debug", asked)
    say(f"session {told['sessionId']}: every second of {told['targetKind']} {told['target']} until {told['until']}")
    for note in told["notes"]:
        say(f"  {note}")
    return say(f"  {told['valuesPerSecond']} values/s more; `secondsight debug stop {told['sessionId']}` ends it")


def _debug_list(arguments: argparse.Namespace) -> int:
    told = ask(arguments, "/v1/debug", {})
    if arguments.json:
        return say(json.dumps(told, indent=2))
    shown = ("sessionId", "active", "targetKind", "target", "start", "until", "valuesPerSecond", "startedBy")
    show(told["sessions"], shown, as_json=False)
    return say(f"{told['freeValuesPerSecond']} of {told['budgetValuesPerSecond']} values/s are free")


def _debug_stop(arguments: argparse.Namespace) -> int:
    told = send(arguments, "DELETE", f"/v1/debug/{arguments.session_id}")
    return say(f"session {told['sessionId']} has ended")


def _debug_budget(arguments: argparse.Namespace) -> int:
    from secondsight.access.debug import set_budget

    if arguments.values != "default" and not arguments.values.isdigit():
        raise Rejected("bad_budget", f"{arguments.values!r} is no number of values a second", "a number, or default")
    values = None if arguments.values == "default" else int(arguments.values)
    with metadata(arguments) as engine:
        set_budget(engine, arguments.tenant, values)
        audit(engine, arguments.tenant, "debug_budget", arguments.values)
    return say(f"debug sessions of tenant {arguments.tenant} may add {arguments.values} values/s")
