"""Turn declared losses into one frame of `agent_shed` events, complete in itself.

It takes its identity from the loss book: the book's id stands for the spool, entries are numbered, and every event
names its entry, so a frame that is sent twice says nothing twice.
"""

from collections.abc import Sequence

import numpy as np

from secondsight.agent.spool.losses import Declared, LossReason
from secondsight.model import EntityKind
from secondsight.wire.content import Content, Entity, EntityTable, Event
from secondsight.wire.frame import encode
from secondsight.wire.header import Stamp
from secondsight.wire.schema import make_schema

METRIC = "agent_shed"
CODES = {reason: code for code, reason in enumerate(LossReason, start=1)}
"""Codes of the reasons; frozen: new reasons are appended."""


def declaration(collector_id: str, host_id: str, book_id: int, entries: Sequence[Declared], now_ms: int) -> bytes:
    """Return the frame that declares `entries`, of which there is at least one.

    Args:
        collector_id: Of the agent.
        host_id: Of the agent.
        book_id: Of the loss book.
        entries: What is declared.
        now_ms: Stands for times that are not known or not yet.
    """
    numbers = [entry.number for entry in entries]
    stamp = Stamp(
        collector_id=collector_id,
        host_id=host_id,
        source="self",
        spool_id=book_id,
        first_sequence=min(numbers),
        last_sequence=max(numbers),
        tick_times_ms=np.zeros(0, np.int64),
        interval_ms=1000,
    )
    table = EntityTable(EntityKind.PLATFORM, host_id, "", (Entity(collector_id),))
    events = tuple(_event(collector_id, host_id, book_id, entry, now_ms) for entry in entries)
    return encode(stamp, Content(make_schema(EntityKind.PLATFORM, ()), table, events=events), inline=True)


def _event(collector_id: str, host_id: str, book_id: int, entry: Declared, now_ms: int) -> Event:
    loss = entry.loss
    first_ms = min(loss.first_ms or now_ms, now_ms)
    attributes = {
        "id": f"{book_id:016x}-{entry.number}",
        "reason": loss.reason.value,
        "class": f"P{loss.priority.value}",
        "kind": loss.kind,
        "collector": loss.collector_id or collector_id,
        "host": host_id,
        "records": str(loss.records),
        "rows": str(loss.rows),
        "values": str(loss.values),
        "first_ms": str(loss.first_ms),
        "last_ms": str(loss.last_ms),
    }
    if loss.was_spooled:
        attributes["spool_id"] = f"{loss.spool_id:016x}"
        attributes["first_sequence"] = str(loss.first_sequence)
        attributes["last_sequence"] = str(loss.last_sequence)
    end_ms = max(min(loss.last_ms or now_ms, now_ms), first_ms)
    return Event(METRIC, collector_id, "", first_ms, CODES[loss.reason], end_ms, 1, attributes)
