"""Serve the replays of operators: `POST /v1/deadletters/replay` of letters, `/v1/log/replay` of frames of the log."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Engine

from secondsight.access.audit import AuditEntry, write_entries
from secondsight.access.identity import Identity, Role
from secondsight.access.scope import scopes_of
from secondsight.access.tokens import Authenticator
from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.gateway.answer import JSON, Answer
from secondsight.gateway.pressure import Pressure
from secondsight.gateway.replay.replays import Asker, Fate, Replays, Result
from secondsight.gateway.request import Body, Request
from secondsight.gateway.shares import NOBODY
from secondsight.selfmetrics import SelfMetrics
from secondsight.wire.letters import Letter

LETTERS_MAXIMUM = 500
"""Of one request."""
BODY_BYTES = 1 << 20
BODY_SECONDS = 30.0
OPERATORS = (Role.OPERATOR, Role.ADMIN)
_SHAPE = 'send {"letters": [{"id": "...", "partition": 0, "offset": 7, "stage": "...", "code": "...", "metric": ""}]}'
_RECORDS = 'send {"records": [[0, 7], ...]}: partition and offset of each'


@dataclass(frozen=True, slots=True)
class Asking:
    """What requests of operators are let in by."""

    authenticator: Authenticator
    metadata: Engine
    pressure: Pressure


class ReplayRoutes:
    """The route of replays. Lives in one event loop."""

    def __init__(self, replays: Replays, asking: Asking, clock: Clock, metrics: SelfMetrics) -> None:
        self._replays = replays
        self._authenticator = asking.authenticator
        self._metadata = asking.metadata
        self._pressure = asking.pressure
        self._clock = clock
        self._metrics = metrics

    async def post_replay(self, request: Request) -> Answer:
        """Send the letters that are named again, or say what would become of them."""
        identity = await asyncio.to_thread(self._operator, request.bearer())
        request.require_content(JSON)
        with Body(self._pressure, BODY_BYTES, BODY_SECONDS, NOBODY) as body:
            letters, dry = _asked(await body.read(request))
        scopes = await asyncio.to_thread(scopes_of, identity, self._metadata)
        asker = Asker(identity, scopes, dry)
        results = [await self._replays.replay(letter, asker) for letter in letters]
        if not dry:
            await asyncio.to_thread(self._audit, identity, results)
            for result in results:
                self._metrics.count("gateway_replayed_letters_total", outcome=result.fate.value)
        return Answer(200, orjson.dumps({"dryRun": dry, "results": [_shown(result) for result in results]}))

    async def post_records(self, request: Request) -> Answer:
        """Append the frames at some places of the log anew: what the store lacks of them is stored, nothing twice."""
        identity = await asyncio.to_thread(self._operator, request.bearer())
        request.require_content(JSON)
        with Body(self._pressure, BODY_BYTES, BODY_SECONDS, NOBODY) as body:
            places = _places(await body.read(request))
        scopes = await asyncio.to_thread(scopes_of, identity, self._metadata)
        outcomes = await self._replays.append_again(places, Asker(identity, scopes, dry=False))
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        await asyncio.to_thread(self._write_audit, identity, "log_replay", f"{len(places)} records of the log: {told}")
        for outcome, count in outcomes.items():
            self._metrics.count("gateway_replayed_records_total", count, outcome=outcome)
        return Answer(200, orjson.dumps({"outcomes": dict(outcomes)}))

    def _operator(self, secret: str) -> Identity:
        identity = self._authenticator.authenticate(secret)
        if identity.role not in OPERATORS:
            message = f"the role {identity.role} cannot have anything sent again"
            raise Rejected("role_cannot_operate", message, "use a token of the role operator or admin")
        return identity

    def _audit(self, identity: Identity, results: list[Result]) -> None:
        done = sum(result.fate is Fate.REPLAYED for result in results)
        self._write_audit(identity, "deadletters_replay", f"{done} of {len(results)} dead letters were sent again")

    def _write_audit(self, identity: Identity, action: str, detail: str) -> None:
        entry = AuditEntry(self._clock.now_ms(), identity.subject, identity.tenant_id, action, "ok", detail)
        write_entries(self._metadata, [entry])


def _asked(body: bytes) -> tuple[list[Letter], bool]:
    """Return which letters, and whether only to say what would become of them.

    Raises:
        Rejected(bad_json, bad_request, too_many_letters)
    """
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Rejected("bad_json", "the body is not JSON", _SHAPE) from error
    listed = said.get("letters") if isinstance(said, dict) else None
    if not isinstance(listed, list) or not isinstance(said.get("dryRun", True), bool):
        raise Rejected("bad_request", "the body does not list letters", _SHAPE)
    if len(listed) > LETTERS_MAXIMUM:
        message = f"{len(listed)} letters are too many at once"
        raise Rejected("too_many_letters", message, f"name {LETTERS_MAXIMUM} at most")
    return [_letter(one) for one in listed], said.get("dryRun", True)


def _places(body: bytes) -> list[tuple[int, int]]:
    """Return which records of the log, as (partition, offset).

    Raises:
        Rejected(bad_json, bad_request, too_many_records)
    """
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Rejected("bad_json", "the body is not JSON", _RECORDS) from error
    listed = said.get("records") if isinstance(said, dict) else None
    if not isinstance(listed, list) or not all(map(_is_place, listed)):
        raise Rejected("bad_request", "the body does not list records", _RECORDS)
    if len(listed) > LETTERS_MAXIMUM:
        message = f"{len(listed)} records are too many at once"
        raise Rejected("too_many_records", message, f"name {LETTERS_MAXIMUM} at most")
    return [(place[0], place[1]) for place in listed]


def _is_place(said: Any) -> bool:
    return isinstance(said, list) and len(said) == 2 and all(type(each) is int and each >= 0 for each in said)


def _letter(said: Any) -> Letter:
    fields: dict[str, Callable[[Any], bool]] = {
        "partition": lambda value: type(value) is int and value >= 0,
        "offset": lambda value: type(value) is int and value >= 0,
        "stage": lambda value: isinstance(value, str),
        "code": lambda value: isinstance(value, str),
        "metric": lambda value: isinstance(value, str),
    }
    if not isinstance(said, dict) or not all(is_right(said.get(name)) for name, is_right in fields.items()):
        raise Rejected("bad_request", "a letter is not named as it is listed", _SHAPE)
    letter = Letter(**{name: said[name] for name in fields})
    if said.get("id") != f"{letter.id:016x}":
        raise Rejected("bad_request", f"the id {str(said.get('id'))[:64]!r} is not that of such a letter", _SHAPE)
    return letter


def _shown(result: Result) -> dict[str, str]:
    return {
        "id": f"{result.letter.id:016x}",
        "outcome": result.fate.value,
        "code": result.code,
        "message": result.message,
    }
