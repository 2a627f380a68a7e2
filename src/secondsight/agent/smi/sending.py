"""Send imported ticks to a gateway as frames of their own times.

Frames are named by the content of the files, so that the same import twice is recognised as a repetition. They take
the lane that moves no watermark: data of the past never makes a live stream look complete.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from secondsight.agent.client.transport import Transport
from secondsight.agent.smi.importing import ImportedFile
from secondsight.clock import Clock
from secondsight.errors import Permanent, Retryable
from secondsight.mapping.cells import ContentBuilder
from secondsight.wire.content import Content, Frame
from secondsight.wire.frame import decode, encode
from secondsight.wire.header import Stamp
from secondsight.wire.merge import merge, merge_key
from secondsight.wire.schema import Definitions

FRAME_TICKS_MAXIMUM = 300
BODY_BYTES = 1 << 20
TRIES = 5
SOURCE = "smi"


@dataclass(slots=True)
class Sent:
    """What a gateway said to an import: frames by outcome, and refused ones by code."""

    frames: int = 0
    ticks: int = 0
    duplicates: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def send(files: Sequence[ImportedFile], host_id: str, collector_id: str, transport: Transport, clock: Clock) -> Sent:
    """Send every tick that has an instant.

    Raises:
        Retryable: The gateway stays away.
        Permanent: It refuses whole bodies; the message says why.
    """
    sent = Sent()
    bodies = [encode(*merge(batch), inline=True) for batch in _batches(files, host_id, collector_id)]
    sent.ticks = sum(ms is not None for file in files for ms, _ in file.ticks)
    for body in _joined(bodies):
        _post(body, transport, clock, sent)
    return sent


def _batches(files: Sequence[ImportedFile], host_id: str, collector_id: str) -> Iterator[list[Frame]]:
    """Give lists of frames that can be merged: of one kind and one pair of definitions, times ascending."""
    frames = list(_frames(files, host_id, collector_id))
    frames.sort(key=lambda frame: (frame.header.kind, int(frame.header.tick_times_ms[0])))
    for _, same in groupby(frames, key=lambda frame: repr(merge_key(frame.header))):
        batch: list[Frame] = []
        for frame in same:
            repeated = bool(batch) and batch[-1].header.tick_times_ms[0] == frame.header.tick_times_ms[0]
            if repeated or len(batch) == FRAME_TICKS_MAXIMUM:
                yield batch
                batch = []
            batch.append(frame)
        if batch:
            yield batch


def _frames(files: Sequence[ImportedFile], host_id: str, collector_id: str) -> Iterator[Frame]:
    builder = ContentBuilder(host_id, "")
    spool_id = _spool_id(files, host_id)
    sequence = 0
    for file in files:
        for ms, mapped in file.ticks:
            for content in builder.build(mapped.gathered, 0) if ms is not None else ():
                sequence += 1
                stamp = Stamp(
                    collector_id=collector_id,
                    host_id=host_id,
                    source=SOURCE,
                    spool_id=spool_id,
                    first_sequence=sequence,
                    last_sequence=sequence,
                    tick_times_ms=np.array([ms], np.int64),
                    interval_ms=file.interval_ms,
                    live=True,
                )
                yield _frame(stamp, content)


def _frame(stamp: Stamp, content: Content) -> Frame:
    return decode(encode(stamp, content, inline=True), Definitions())


def _spool_id(files: Sequence[ImportedFile], host_id: str) -> int:
    digest = hashlib.sha256(host_id.encode())
    for file in files:
        for ms, mapped in file.ticks:
            cells = [(cell.metric.name, cell.entity, cell.part, cell.value) for cell in mapped.gathered.cells]
            digest.update(repr((ms, cells)).encode())
    return int.from_bytes(digest.digest()[:8], "little")


def _joined(frames: Sequence[bytes]) -> Iterator[bytes]:
    body = b""
    for frame in frames:
        if body and len(body) + len(frame) > BODY_BYTES:
            yield body
            body = b""
        body += frame
    if body:
        yield body


def _post(body: bytes, transport: Transport, clock: Clock, sent: Sent) -> None:
    for attempt in range(TRIES):
        try:
            answer = transport.post(body)
        except Retryable:
            if attempt == TRIES - 1:
                raise
            clock.sleep(2.0**attempt)
            continue
        if answer.status == 200:
            _note(json.loads(answer.body), sent)
            return
        if answer.status not in (429, 503) or attempt == TRIES - 1:
            raise Permanent(f"the gateway answered {answer.status}: {answer.body[:300].decode(errors='replace')}")
        clock.sleep(2.0**attempt)


def _note(told: dict[str, object], sent: Sent) -> None:
    accepted, duplicates, rejected = told.get("accepted"), told.get("duplicate"), told.get("rejected")
    sent.frames += accepted if isinstance(accepted, int) else 0
    sent.duplicates += duplicates if isinstance(duplicates, int) else 0
    if isinstance(rejected, list):
        sent.refused.update(str(item.get("code", "unknown")) for item in rejected if isinstance(item, dict))
