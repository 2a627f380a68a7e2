"""Name dead letters, and say in a log record that one was sent again.

A dead letter is about one record of the log, and is named after where that lies and what was wrong with it: whoever
reads the record can tell whether a name is right. A mark is a refusal record of the stage `replayed`; it stands in the
log right before what was sent again.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.wire.content import Header

REPLAYED = "replayed"


@dataclass(frozen=True, slots=True)
class Letter:
    """What names a dead letter.

    Attributes:
        partition, offset: Of the record of the log that it is about.
        stage, code, metric: What was wrong.
    """

    partition: int
    offset: int
    stage: str
    code: str
    metric: str

    @property
    def id(self) -> int:
        """Return 64 bits that name it."""
        return letter_id(self.partition, self.offset, self.stage, self.code, self.metric)


def letter_id(partition: int, offset: int, stage: str, code: str, metric: str) -> int:
    """Return the 64 bits that name a dead letter."""
    text = "\0".join(map(str, (partition, offset, stage, code, metric))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def mark_of(
    letter: Letter, said: Mapping[str, Any], ingest_time_ms: int, message: str, header: Header | None = None
) -> bytes:
    """Return the body of the record that says that a dead letter was sent again.

    Args:
        letter: It.
        said: What was refused, in the fields of a refusal record.
        ingest_time_ms: Of the record that it is about.
        message: By whom it was sent again.
        header: Of the frame that it is about, where the processor had refused it.
    """
    kept = {name: value for name, value in said.items() if name != "payload_base64"}
    return orjson.dumps(
        {
            **kept,
            "stage": REPLAYED,
            "code": letter.code,
            "metric": letter.metric,
            "message": message,
            "letter_id": str(letter.id),
            "letter_stage": letter.stage,
            "letter_ingest_ms": ingest_time_ms,
            "frame": None if header is None else _facts(header),
        }
    )


def marked_header(facts: Mapping[str, Any]) -> Header:
    """Return what a mark says of the header of its frame: ticks by event time, and what tells records apart.

    Raises:
        Rejected(bad_refusal): It does not say that.
    """
    try:
        return Header(
            kind=EntityKind(facts["kind"]),
            collector_id=str(facts["collector_id"]),
            host_id=str(facts["host_id"]),
            source="",
            spool_id=int(facts["spool_id"]),
            first_sequence=int(facts["first_sequence"]),
            last_sequence=int(facts["last_sequence"]),
            boot_id="",
            tick_times_ms=np.array(facts["event_times_ms"], np.int64),
            interval_ms=int(facts["interval_ms"]),
            clock_offset_ms=None,
            clock_uncertainty_ms=0,
            live=True,
            rows=int(facts["rows"]),
            values=int(facts["values"]),
            quality_cells=0,
            schema_hash=bytes.fromhex(facts["schema_hash"]),
            entities_hash=bytes.fromhex(facts["entities_hash"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Rejected("bad_refusal", f"a mark cannot be read: {error}") from error


def _facts(header: Header) -> dict[str, Any]:
    return {
        "kind": header.kind.value,
        "collector_id": header.collector_id,
        "host_id": header.host_id,
        "spool_id": header.spool_id,
        "first_sequence": header.first_sequence,
        "last_sequence": header.last_sequence,
        "event_times_ms": (header.tick_times_ms + header.correction_ms).tolist(),
        "interval_ms": header.interval_ms,
        "rows": header.rows,
        "values": header.values,
        "schema_hash": header.schema_hash.hex(),
        "entities_hash": header.entities_hash.hex(),
    }
