"""The command that lists what happened. It goes through the api, with a token."""

import argparse
import json
import sys
from typing import Any

from secondsight.administer.shell import AddCommand, AddServer, Commands, ask, say, show

FILTERS = ("metric", "kind", "cluster", "host", "gpu", "job", "team", "severity", "code")
_SHOWN = ("time", "end", "metric", "code", "host", "entity", "job", "text")


def add_events(commands: Commands, add: AddCommand, add_server: AddServer) -> None:
    """Add `events`."""
    events = add(
        commands,
        "events",
        "show what happened: errors, jobs, boots, work on hosts",
        _events,
        "secondsight events --host gpu-host-17 --from now-6h --metric gpu_xid,job_exit",
    )
    for name in FILTERS:
        events.add_argument(f"--{name}", default="", metavar="NAMES", help=f"only of this {name}, or several by commas")
    events.add_argument("--from", dest="from_time", default="now-1h", metavar="TIME", help="RFC 3339, ms, or now-15m")
    events.add_argument("--to", dest="to_time", default="now", metavar="TIME")
    events.add_argument("--limit", default="100", metavar="N", help="rows (100)")
    events.add_argument("--history", action="store_true", help="every version that was ever told")
    events.add_argument("--infos", action="store_true", help="facts that hold from a time on, instead")
    events.add_argument("--json", action="store_true", help="the answer as JSON")
    add_server(events)


def _events(arguments: argparse.Namespace) -> int:
    from secondsight.query.terminal import exit_code

    filters = {name: getattr(arguments, name) for name in FILTERS}
    if arguments.infos:
        filters = {name: value for name, value in filters.items() if name not in ("severity", "code")}
    params = {**filters, "from": arguments.from_time, "to": arguments.to_time, "limit": arguments.limit}
    params["history"] = "true" if arguments.history and not arguments.infos else None
    name = "facts" if arguments.infos else "events"
    body = ask(arguments, "/v1/infos" if arguments.infos else "/v1/events", params)
    if arguments.json:
        say(json.dumps(body, indent=2))
        return exit_code(body, name)
    found = body[name]
    show([_row(one) for one in found], _SHOWN, as_json=False)
    sys.stdout.write("".join(f"note: {warning}\n" for warning in body["warnings"]))
    say(f"{len(found)} of {body['total']}; complete through {body['completeThrough'] or 'nothing yet'}")
    return exit_code(body, name)


def _row(one: dict[str, Any]) -> dict[str, Any]:
    code = one.get("code", "")
    attributes = one["attributes"]
    facts = "" if "code" in one else ", ".join(f"{name} {value}" for name, value in attributes.items())
    text = next((attributes[name] for name in ("message", "text", "note") if attributes.get(name)), facts)
    return {
        "time": one["time"],
        "end": one.get("endTime") or "",
        "metric": one["metric"],
        "code": f"{code} {one['meaning']}" if one.get("meaning") else str(code),
        "host": one["hostId"],
        "entity": one["entityId"],
        "job": one["jobId"],
        "text": text,
    }
