"""Turn what could not be taken in into rows of the dead letters, each with an id that a replay gives again."""

import base64
import binascii
import json
from dataclasses import dataclass

from secondsight.contracts import Store
from secondsight.errors import Permanent, Rejected
from secondsight.process.land import Row
from secondsight.wire.content import Header
from secondsight.wire.envelope import Envelope
from secondsight.wire.letters import REPLAYED, letter_id

QUARANTINE, DEAD_LETTER = "quarantine", "dead_letter"
MAX_PAYLOAD_BYTES = 64 << 10
UNREADABLE = "unreadable"
"""Tenant of records that cannot be read, and so are nobody's: for whoever runs the platform."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the log a record lies, and when it was appended."""

    partition: int
    offset: int
    append_ms: int


@dataclass(frozen=True, slots=True)
class Loss:
    """What was not stored: how much of which metric ("" for whole rows), and why."""

    stage: str
    code: str
    message: str
    metric: str = ""
    rows: int = 0
    values: int = 0


def undecoded_row(position: Position, error: Permanent, value: bytes) -> Row:
    """Return the row of a record that is no envelope."""
    return _row(position, Loss(DEAD_LETTER, code_of(error), str(error)), _NO_PLACE) | {
        "tenant_id": UNREADABLE,
        "ingest_time": position.append_ms,
        "payload": _payload(value),
    }


def refused_row(position: Position, error: Permanent, envelope: Envelope, header: Header | None) -> Row:
    """Return the row of a record that could not be processed."""
    loss = Loss(
        DEAD_LETTER,
        code_of(error),
        str(error),
        rows=header.rows if header else 0,
        values=header.values if header else 0,
    )
    return lost_row(position, loss, envelope, header) | {"payload": _payload(envelope.body)}


def lost_row(position: Position, loss: Loss, envelope: Envelope, header: Header | None) -> Row:
    """Return the row of a part of a frame that was not stored."""
    place = _NO_PLACE | {"tenant_id": envelope.tenant_id, "cluster_id": envelope.cluster_id}
    if header is not None:
        place |= {"host_id": header.host_id, "collector_id": header.collector_id, "kind": header.kind.value}
        if len(header.tick_times_ms):
            place |= {"first_time": int(header.tick_times_ms[0]), "last_time": int(header.tick_times_ms[-1])}
    return _row(position, loss, place) | {"ingest_time": envelope.ingest_time_ms}


def gateway_row(position: Position, envelope: Envelope) -> Row:
    """Return the row of what a gateway refused, or the mark of what was sent again, which has its letter's id.

    Raises:
        Rejected: `bad_refusal`.
    """
    try:
        said = json.loads(envelope.body)
        loss = Loss(
            str(said["stage"]),
            str(said["code"]),
            str(said["message"]),
            str(said.get("metric", "")),
            int(said["rows"]),
            int(said["values"]),
        )
        place = {name: str(said.get(name, "")) for name in ("host_id", "collector_id", "kind")}
        times = {"first_time": int(said["first_tick_ms"] or 0), "last_time": int(said["last_tick_ms"] or 0)}
        payload = base64.b64decode(said.get("payload_base64", ""), validate=True)
        letter = int(said["letter_id"]) if loss.stage == REPLAYED else None
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise Rejected("bad_refusal", f"a refusal record cannot be read: {error}") from error
    ids = {"tenant_id": envelope.tenant_id, "cluster_id": envelope.cluster_id}
    row = _row(position, loss, _NO_PLACE | ids | place | times)
    row |= {} if letter is None else {"id": letter & (1 << 64) - 1}
    return row | {"ingest_time": envelope.ingest_time_ms, "payload": _payload(payload)}


def drop_letters(store: Store, before_ms: int) -> list[str]:
    """Delete the letters of months that ended before a time; return these months as `YYYYMM`.

    Raises:
        SecondsightError: The store is busy or away.
    """
    found = store.query(
        "SELECT DISTINCT partition FROM system.parts WHERE database = currentDatabase() AND table = 'dead_letters' "
        "AND active AND partition < toString(toYYYYMM(fromUnixTimestamp64Milli({before:Int64}, 'UTC'))) "
        "ORDER BY partition",
        {"before": before_ms},
    )
    months = [str(row["partition"]) for row in found.to_pylist()]
    for month in months:
        store.query("ALTER TABLE dead_letters DROP PARTITION {month:String}", {"month": month})
    return months


def code_of(error: Permanent) -> str:
    """Return the stable word of an error."""
    return error.code if isinstance(error, Rejected) else "failed"


_NO_PLACE: Row = {
    "tenant_id": "",
    "cluster_id": "",
    "host_id": "",
    "collector_id": "",
    "kind": "",
    "first_time": 0,
    "last_time": 0,
}


def _row(position: Position, loss: Loss, place: Row) -> Row:
    return {
        "stage": loss.stage,
        "code": loss.code,
        "message": loss.message,
        **place,
        "metric": loss.metric,
        "rows": loss.rows,
        "values": loss.values,
        "payload": "",
        "id": letter_id(position.partition, position.offset, loss.stage, loss.code, loss.metric),
        "log_partition": position.partition,
        "log_offset": position.offset,
    }


def _payload(value: bytes) -> str:
    return base64.b64encode(value[:MAX_PAYLOAD_BYTES]).decode()
