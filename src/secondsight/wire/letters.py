"""Name dead letters, and say in a log record that one was sent again.

A dead letter is about one record of the log, and is named after where that lies and what was wrong with it: whoever
reads the record can tell whether a name is right. A mark is a refusal record of the stage `replayed`; it stands in the
log right before what was sent again.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

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


def mark_of(letter: Letter, said: Mapping[str, Any], ingest_time_ms: int, message: str, header: bytes = b"") -> bytes:
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
            "header_base64": base64.b64encode(header).decode(),
        }
    )
