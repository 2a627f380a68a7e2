"""Say whether the frame of a dead letter can be stored now, and what is to be appended for it.

A frame that the log has was admitted once: it is appended as it was then, unless it was its time that was wrong, which
is judged by the time of its admission. Everything else about it is judged by what is known now.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from secondsight.catalog.index import Catalog
from secondsight.catalog.metric import MetricType
from secondsight.errors import Rejected
from secondsight.gateway.admission import Bounds, refused_columns, refused_time
from secondsight.gateway.records import QUARANTINE, QUARANTINE_CODES, Pair, record
from secondsight.wire.content import Frame
from secondsight.wire.envelope import Envelope, RecordType
from secondsight.wire.frame import decode, split
from secondsight.wire.letters import Letter, mark_of
from secondsight.wire.schema import Definitions

FOR_EVER = frozenset(
    {"bad_checksum", "truncated", "bad_envelope", "bad_plan", "bad_refusal", "host_not_allowed", "bad_time"}
)
"""Reasons that hold of the same bytes whatever becomes of the platform."""
FindBlobs = Callable[[Iterable[bytes]], Mapping[bytes, bytes]]
"""Returns the definitions that are stored, by hash; may block."""


class Refused(Rejected):
    """It cannot be stored; `lasting` where no fix will change that."""

    def __init__(self, code: str, message: str, hint: str = "", *, lasting: bool = False) -> None:
        super().__init__(code, message, hint)
        self.lasting = lasting or code in FOR_EVER


@dataclass(frozen=True, slots=True)
class Judge:
    """What frames are judged by."""

    catalog: Catalog
    bounds: Bounds
    find_blobs: FindBlobs

    def records(
        self, letter: Letter, envelope: Envelope, body: bytes, said: Mapping[str, Any], now: tuple[int, str]
    ) -> tuple[Pair, Pair]:
        """Return the mark of a letter and the record of its frame, in the order in which they are to be appended.

        Args:
            letter: It.
            envelope: Of the record that it is about: the frame's own, or that of the refusal that holds it.
            body: The frame.
            said: What the refusal says; empty where the record is the frame's own.
            now: The gateway's clock, and by whom it is asked.

        Raises:
            Refused: It would be refused again.
        """
        now_ms, message = now
        frame = self._decoded(body)
        admitted_ms = envelope.ingest_time_ms
        if said or letter.stage == QUARANTINE or letter.code in QUARANTINE_CODES:
            admitted_ms = now_ms
        self._require_time(frame, body, admitted_ms, now_ms)
        self._require_place(letter, frame)
        header = None if said else frame.header
        home = (envelope.tenant_id, envelope.region, envelope.cluster_id)
        mark = mark_of(letter, said or _said(frame), envelope.ingest_time_ms, message, header)
        return (
            record(RecordType.REFUSED, home, frame.header.host_id, now_ms, mark),
            record(RecordType.FRAME, home, frame.header.host_id, admitted_ms, body),
        )

    def _decoded(self, body: bytes) -> Frame:
        try:
            heads = split(body)
            known = Definitions()
            for blob in self.find_blobs((heads[0].schema_hash, heads[0].entities_hash)).values():
                known.add(blob)
            return decode(body, known)
        except Rejected as error:
            raise Refused(error.code, error.message, error.hint) from error

    def _require_time(self, frame: Frame, body: bytes, admitted_ms: int, now_ms: int) -> None:
        refusal = refused_time(split(body)[0], now_ms, self.bounds)
        if refusal is not None:
            raise Refused(refusal.code, refusal.message)
        content = frame.content
        times_ms = [*(event.time_ms for event in content.events), *(info.time_ms for info in content.infos)]
        newest_ms = max(times_ms, default=0) + frame.header.correction_ms
        if newest_ms > admitted_ms + self.bounds.future_ms:
            raise Refused("future_time", "an event of the frame still lies ahead of the gateway", "try again later")

    def _require_place(self, letter: Letter, frame: Frame) -> None:
        """Refuse a frame of which the catalogue still does not have what it was refused for."""
        header = frame.header
        if not header.host_id or (header.rows and header.interval_ms < 1):
            raise Refused("bad_frame", f"collector {header.collector_id} sent a frame without host or cadence")
        for refusal in refused_columns(frame.content.schema, self.catalog):
            if refusal.metric == letter.metric:
                raise Refused(refusal.code, refusal.message)
        named = {(MetricType.EVENT, event.metric) for event in frame.content.events}
        named |= {(MetricType.INFO, info.metric) for info in frame.content.infos}
        for type_, name in named:
            if name == letter.metric and not self._has(name, type_):
                raise Refused("unknown_metric", f"the catalogue has no {type_} {name}")

    def _has(self, name: str, type_: MetricType) -> bool:
        return name in self.catalog and self.catalog.get(name).type is type_


def _said(frame: Frame) -> dict[str, Any]:
    """Return what a refusal record would say of a frame."""
    header = frame.header
    times_ms = header.tick_times_ms
    return {
        "collector_id": header.collector_id,
        "host_id": header.host_id,
        "kind": header.kind.value,
        "rows": header.rows,
        "values": header.values,
        "first_tick_ms": int(times_ms[0]) if times_ms.size else None,
        "last_tick_ms": int(times_ms[-1]) if times_ms.size else None,
    }
