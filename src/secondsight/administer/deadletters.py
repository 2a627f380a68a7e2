"""Commands about what was refused: dead letters, and sending them again. They go through the api, with a token."""

import argparse
import base64
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from secondsight.administer.replay import add_replays
from secondsight.administer.shell import AddCommand, AddServer, Commands, ask, group, plain, say, send, show

FILTERS = ("cluster", "host", "collector", "stage", "reason", "metric", "id")
PAGE, CHUNK = 500, 200
HOSTS_SHOWN = 5
_LISTED = ("id", "time", "stage", "code", "host", "collector", "metric", "rows", "values", "replayed", "message")


def add_dead_letters(commands: Commands, add: AddCommand, add_server: AddServer) -> None:
    """Add `deadletters` and `replay`."""
    letters = group(commands, "deadletters", "what was refused, and why")
    listing = add(
        letters, "list", "list dead letters, newest first", _list, "secondsight deadletters list --from now-1d"
    )
    counting = add(
        letters, "count", "count dead letters by reason", _count, "secondsight deadletters count --from now-7d"
    )
    for parser in (listing, counting):
        _add_filters(parser, add_server)
        parser.add_argument("--replayed", choices=("yes", "no"), help="only those that were sent again, or were not")
        parser.add_argument("--json", action="store_true", help="the answer as JSON")
    listing.add_argument("--limit", default="100", metavar="N", help="rows (100)")
    one = add(
        letters, "show", "show a dead letter and its bytes", _show, "secondsight deadletters show 4f2a90c1b7d3e8a0"
    )
    one.add_argument("letter_id", metavar="ID")
    one.add_argument("--from", dest="from_time", default="now-31d", metavar="TIME", help="taken in after (now-31d)")
    one.add_argument("--json", action="store_true", help="the answer as JSON")
    one.add_argument("--bytes", type=Path, metavar="FILE", help="write the bytes that were kept to this file")
    add_server(one)
    replay = add(
        commands,
        "replay",
        "send dead letters again after what was wrong is put right; without --run only say what would become of them",
        _replay,
        "secondsight replay --reason unknown_metric --from now-6h --run",
    )
    _add_filters(replay, add_server)
    add_replays(replay, add, add_server)
    replay.add_argument("--run", action="store_true", help="send them")
    replay.add_argument("--again", action="store_true", help="also those that were sent again before")
    replay.add_argument("--json", action="store_true", help="what became of each as JSON")


def _add_filters(parser: argparse.ArgumentParser, add_server: AddServer) -> None:
    for name in FILTERS:
        parser.add_argument(f"--{name}", default="", metavar="NAMES", help=f"only of this {name}, or several by commas")
    parser.add_argument("--from", dest="from_time", default="now-1d", metavar="TIME", help="taken in after (now-1d)")
    parser.add_argument("--to", dest="to_time", default="now", metavar="TIME")
    add_server(parser)


def _list(arguments: argparse.Namespace) -> int:
    body = ask(arguments, "/v1/deadletters", {**_filters(arguments), "limit": arguments.limit})
    if arguments.json:
        return say(json.dumps(body, indent=2))
    show([_row(one) for one in body["letters"]], _LISTED, as_json=False)
    return say(f"{len(body['letters'])} of {body['total']}")


def _count(arguments: argparse.Namespace) -> int:
    body = ask(arguments, "/v1/deadletters/counts", _filters(arguments))
    if arguments.json:
        return say(json.dumps(body, indent=2))
    shown = ("stage", "code", "letters", "rows", "values", "replayed", "oldestTime", "newestTime")
    show(body["reasons"], shown, as_json=False)
    return say(f"{body['total']} dead letters")


def _show(arguments: argparse.Namespace) -> int:
    body = ask(arguments, f"/v1/deadletters/{arguments.letter_id}", {"from": arguments.from_time})
    payload = base64.b64decode(body["payload"])
    if arguments.bytes is not None:
        arguments.bytes.write_bytes(payload)
    if arguments.json:
        return say(json.dumps(body, indent=2))
    for name, value in body.items():
        if name != "payload" and value not in (None, ""):
            say(plain(f"{name}: {value}"))
    return say(_preview(payload))


def _preview(payload: bytes) -> str:
    if not payload:
        return "no bytes of it were kept"
    text = payload.decode("utf-8", "replace")
    if text.isprintable():
        return text
    lines = (payload[start : start + 16].hex(" ") for start in range(0, min(len(payload), 256), 16))
    return "\n".join([f"{len(payload)} bytes, the first of which are", *lines])


def _replay(arguments: argparse.Namespace) -> int:
    """Send letters again, oldest first; exit 1 where some were refused again or cannot be sent."""
    params = {**_filters(arguments), "replayed": None if arguments.again else "false"}
    letters = sorted(_all(arguments, params), key=lambda one: (one["ingestTime"], one["offset"] or 0))
    results = list(_sent(arguments, letters))
    if arguments.json:
        say(json.dumps(results, indent=2))
    else:
        hosts = {one["id"]: one["hostId"] or one["collectorId"] for one in letters}
        _print_results(results, hosts, dry=not arguments.run)
    return 0 if all(one["outcome"] == "replayed" for one in results) else 1


def _all(arguments: argparse.Namespace, params: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    cursor: str | None = ""
    while cursor is not None:
        page = ask(arguments, "/v1/deadletters", {**params, "limit": str(PAGE), "cursor": cursor})
        yield from page["letters"]
        cursor = page["nextCursor"]


def _sent(arguments: argparse.Namespace, letters: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in letters:
        if one["offset"] is None:
            message = "it was kept before the places of records were"
            yield {"id": one["id"], "outcome": "never", "code": "no_place", "message": message}
    placed = [one for one in letters if one["offset"] is not None]
    for start in range(0, len(placed), CHUNK):
        if sys.stderr.isatty() and len(placed) > CHUNK:
            sys.stderr.write(f"\r{start} of {len(placed)}")
        named = ("id", "partition", "offset", "stage", "code", "metric")
        chunk = [{name: one[name] for name in named} for one in placed[start : start + CHUNK]]
        body = {"dryRun": not arguments.run, "letters": chunk}
        yield from send(arguments, "POST", "/v1/deadletters/replay", body)["results"]


def _print_results(results: Sequence[dict[str, Any]], hosts: Mapping[str, str], *, dry: bool) -> None:
    words = {
        "replayed": "would be sent again" if dry else "sent again",
        "refused": "are still refused",
        "never": "can never be sent again",
    }
    alike = defaultdict[tuple[str, str, str], list[str]](list)
    for one in results:
        alike[one["outcome"], one["code"], one["message"]].append(hosts.get(one["id"], ""))
    for (outcome, code, message), found in sorted(alike.items(), key=lambda item: -len(item[1])):
        named = sorted(set(filter(None, found)))
        more = f" and {len(named) - HOSTS_SHOWN} more" if len(named) > HOSTS_SHOWN else ""
        of = f" (of {', '.join(named[:HOSTS_SHOWN])}{more})" if named else ""
        say(plain(f"{len(found)} {words[outcome]}{f': {code}, {message}' if code else ''}{of}"))
    if not results:
        say("no dead letters match")
    elif dry:
        say("this was a dry run; --run sends them")


def _row(one: dict[str, Any]) -> dict[str, Any]:
    shorter = {"time": one["ingestTime"], "host": one["hostId"], "collector": one["collectorId"]}
    return {**one, **shorter, "replayed": one["replayedTime"] or ""}


def _filters(arguments: argparse.Namespace) -> dict[str, str | None]:
    found: dict[str, str | None] = {name: getattr(arguments, name) for name in FILTERS}
    replayed = {"yes": "true", "no": "false"}.get(getattr(arguments, "replayed", None) or "")
    return {**found, "from": arguments.from_time, "to": arguments.to_time, "replayed": replayed}
