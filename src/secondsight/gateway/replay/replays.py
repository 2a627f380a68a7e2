"""Send dead letters again: read their records from the log, judge them by what is known now, and append them anew.

Whatever is appended is deduplicated like everything that is told twice, so sending a letter again twice doubles
nothing. Right before it stands a mark in the log, which puts on record that it was sent again, and takes what it had
counted as refused out of the ledger.
"""

import asyncio
import base64
import binascii
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import orjson

from secondsight.access.identity import Identity, Role
from secondsight.access.scope import Scope
from secondsight.clock import Clock
from secondsight.contracts import LogRecord
from secondsight.errors import Rejected
from secondsight.gateway.door import Door
from secondsight.gateway.events.body import EVENT_BYTES_MAXIMUM, Piece
from secondsight.gateway.events.intake import SOURCE as EVENTS
from secondsight.gateway.events.intake import EventIntake
from secondsight.gateway.foreign.intake import Again, Decode, ForeignIntake, Form
from secondsight.gateway.records import Pair, record
from secondsight.gateway.replay.judge import Judge, Refused
from secondsight.gateway.shares import Entry
from secondsight.wire.envelope import Envelope, RecordType, decode_envelope
from secondsight.wire.header import MAGIC, read_view
from secondsight.wire.letters import REPLAYED, Letter, mark_of


class Fate(StrEnum):
    """What becomes of a letter."""

    REPLAYED = "replayed"
    REFUSED = "refused"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a letter, or of a dry run would; `code` and `message` say why not."""

    letter: Letter
    fate: Fate
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ways:
    """By which ways things go into the log.

    Attributes:
        records: Appends (key, value) to the topic `ingest`; durable when it returns.
        record_at: Returns the record at (partition, offset) of that topic, None where it is gone; may block.
        decoder: Returns what decodes foreign bodies of (protocol, form).
    """

    records: Callable[[Sequence[Pair], Entry], Awaitable[None]]
    record_at: Callable[[int, int], LogRecord | None]
    events: EventIntake
    foreign: ForeignIntake
    decoder: Callable[[str, str], Decode]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who wants letters sent again, and whose they may be; nothing is appended in a dry run."""

    identity: Identity
    scopes: tuple[Scope, ...]
    dry: bool

    def may(self, envelope: Envelope) -> bool:
        """Tell whether a record is theirs: of a cluster that a grant shows whole."""
        return any(
            envelope.tenant_id in scope.tenant_ids
            and (scope.clusters is None or envelope.cluster_id in scope.clusters)
            and scope.teams is scope.jobs is scope.model_ids is None
            for scope in self.scopes
        )


class Replays:
    """Sends letters again. Lives in one event loop."""

    def __init__(self, ways: Ways, judge: Judge, door: Door, clock: Clock) -> None:
        self._ways = ways
        self._judge = judge
        self._door = door
        self._clock = clock

    async def replay(self, letter: Letter, asker: Asker) -> Result:
        """Send a letter again, or say why that cannot be; durable when it returns.

        Raises:
            Retryable: The log or the metadata store is away, or the tenant's quota is used up; do it again.
        """
        try:
            await self._replay(letter, asker)
        except Refused as error:
            return Result(letter, Fate.NEVER if error.lasting else Fate.REFUSED, error.code, error.message)
        except Rejected as error:
            return Result(letter, Fate.REFUSED, error.code, error.message)
        return Result(letter, Fate.REPLAYED)

    async def append_again(self, places: Sequence[tuple[int, int]], asker: Asker) -> Counter[str]:
        """Append the frames at some (partition, offset) of the log anew, as they were; return how many, by outcome.

        Outcomes: `replayed`, `gone` from the log, `not_yours` by the grants, `other` that holds no frame.

        Raises:
            Retryable: The log is away, or a tenant's quota is used up; do it again.
        """
        found, outcomes = await asyncio.to_thread(self._frames_at, places, asker)
        for envelope, records in found.values():
            entry = await self._door.open(_sender(envelope, {}))
            await self._ways.records(records, entry)
            outcomes["replayed"] += len(records)
        return outcomes

    def _frames_at(
        self, places: Sequence[tuple[int, int]], asker: Asker
    ) -> tuple[dict[tuple[str, str], tuple[Envelope, list[Pair]]], Counter[str]]:
        """Return an envelope and the records of each (tenant, cluster), and how many were left out, by reason."""
        found: dict[tuple[str, str], tuple[Envelope, list[Pair]]] = {}
        left: Counter[str] = Counter()
        for partition, offset in places:
            kept = self._ways.record_at(partition, offset)
            if kept is None:
                left["gone"] += 1
                continue
            try:
                envelope = decode_envelope(kept.value)
                host_id = read_view(envelope.body).host_id if envelope.type is RecordType.FRAME else None
            except Rejected:
                host_id = None
            if host_id is None:
                left["other"] += 1
            elif not asker.may(envelope):
                left["not_yours"] += 1
            else:
                home = (envelope.tenant_id, envelope.region, envelope.cluster_id)
                again = record(RecordType.FRAME, home, host_id, envelope.ingest_time_ms, envelope.body)
                found.setdefault((envelope.tenant_id, envelope.cluster_id), (envelope, []))[1].append(again)
        return found, left

    async def _replay(self, letter: Letter, asker: Asker) -> None:
        record = await asyncio.to_thread(self._ways.record_at, letter.partition, letter.offset)
        if record is None:
            raise Refused("record_gone", "the log does not hold its record any more", lasting=True)
        envelope = decode_envelope(record.value)
        if not asker.may(envelope):
            raise Refused("not_yours", "your grants do not show the cluster that it is of", lasting=True)
        match envelope.type:
            case RecordType.FRAME:
                await self._send_frame(letter, envelope, envelope.body, {}, asker)
            case RecordType.PLAN:
                raise Refused("bad_plan", "plans are announced again by themselves", lasting=True)
            case RecordType.REFUSED:
                await self._send_refused(letter, envelope, asker)

    async def _send_refused(self, letter: Letter, envelope: Envelope, asker: Asker) -> None:
        said, payload = _refusal(envelope)
        if (said["stage"], said["code"], said.get("metric", "")) != (letter.stage, letter.code, letter.metric):
            raise Refused("no_such_letter", "its record speaks of something else", lasting=True)
        if not payload:
            raise Refused(
                "no_payload", "its bytes were not kept; an earlier letter of this reason has some", lasting=True
            )
        if payload.startswith(MAGIC):
            await self._send_frame(letter, envelope, payload, said, asker)
        elif said.get("format") == EVENTS:
            await self._send_event(letter, envelope, said, payload, asker)
        else:
            await self._send_foreign(letter, envelope, said, payload, asker)

    async def _send_frame(
        self, letter: Letter, envelope: Envelope, body: bytes, said: dict[str, Any], asker: Asker
    ) -> None:
        now = (self._clock.now_ms(), _by(asker))
        judged = partial(self._judge.records, letter, envelope, body, said, now)
        records = await asyncio.to_thread(judged)
        if not asker.dry:
            entry = await self._door.open(_sender(envelope, said))
            await self._ways.records(records, entry)

    async def _send_event(
        self, letter: Letter, envelope: Envelope, said: dict[str, Any], payload: bytes, asker: Asker
    ) -> None:
        if letter.code in ("host_not_allowed", "id_conflict") or len(payload) >= EVENT_BYTES_MAXIMUM:
            raise Refused(letter.code, "the same event is refused for it at any time", lasting=True)
        try:
            piece = Piece(payload, orjson.loads(payload))
        except orjson.JSONDecodeError as error:
            raise Refused("bad_json", "the event that was kept is not JSON", lasting=True) from error
        if not isinstance(piece.fields, dict):
            raise Refused("bad_event", "the event that was kept is no object", lasting=True)
        identity = _sender(envelope, said)
        outcome, good = self._ways.events.read(identity, [piece])
        if outcome.rejected:
            raise outcome.rejected[0]
        if not asker.dry:
            entry = await self._door.open(identity)
            mark = self._mark(letter, envelope, said, asker)
            await self._ways.events.store(identity, entry, good.values(), [mark])

    async def _send_foreign(
        self, letter: Letter, envelope: Envelope, said: dict[str, Any], payload: bytes, asker: Asker
    ) -> None:
        if said.get("payload_bytes", len(payload)) != len(payload):
            raise Refused("cut", "the request was too large to be kept whole", lasting=True)
        form = Form(str(said.get("format", "")), str(said.get("form", "")))
        decode = self._ways.decoder(*form)
        if asker.dry:
            return
        identity = _sender(envelope, said)
        entry = await self._door.open(identity)
        again = Again(letter.code, int(said["values"]), self._mark(letter, envelope, said, asker))
        left = await self._ways.foreign.take_again(identity, entry, form, payload, decode, again)
        if left >= again.points:
            raise Refused(letter.code, f"all {left} points of the request are still refused for it")

    def _mark(self, letter: Letter, envelope: Envelope, said: dict[str, Any], asker: Asker) -> Pair:
        mark = mark_of(letter, said, envelope.ingest_time_ms, _by(asker))
        home = (envelope.tenant_id, envelope.region, envelope.cluster_id)
        return record(RecordType.REFUSED, home, str(said.get("host_id", "")), self._clock.now_ms(), mark)


def _refusal(envelope: Envelope) -> tuple[dict[str, Any], bytes]:
    try:
        said = orjson.loads(envelope.body)
        payload = base64.b64decode(said.get("payload_base64", ""), validate=True)
        stage = said["stage"]
    except (orjson.JSONDecodeError, binascii.Error, KeyError, AttributeError, TypeError) as error:
        raise Refused("bad_refusal", "its record cannot be read", lasting=True) from error
    if stage == REPLAYED:
        raise Refused("no_such_letter", "its record says that another one was sent again", lasting=True)
    return said, payload


def _sender(envelope: Envelope, said: dict[str, Any]) -> Identity:
    """Return who sent what was refused, as far as that decides what becomes of it."""
    return Identity(
        subject="replay",
        role=Role.COLLECTOR,
        tenant_id=envelope.tenant_id,
        name=str(said.get("collector_id", "")).partition("/")[0] or "replay",
        cluster_id=envelope.cluster_id,
        region=envelope.region,
        collector_pattern="*",
    )


def _by(asker: Asker) -> str:
    return f"sent again by {asker.identity.subject}"
