"""Turn a body of native frames into log records and an answer about each frame.

Nothing here blocks or waits: definitions are known when `admit` runs, and the caller makes the records durable before
it sends the answer. Frames are looked at by header and checksum only; their bodies stay as they came.
"""

import base64
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from secondsight.access.identity import Identity
from secondsight.errors import Rejected
from secondsight.gateway.admission import Bounds, Refusal, refused_time
from secondsight.gateway.known import KnownDefinitions
from secondsight.gateway.records import QUARANTINE, Pair, record, stage_of
from secondsight.gateway.repeats import Repeats, repeat_key
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import HeadView, check_body, split

REFUSED_PAYLOAD_BYTES = 64 << 10
REJECTED_MAXIMUM = 1000
"""Items of one answer; more are only counted, in `rejectedMore`."""

RefuseSeries = Callable[[HeadView], Refusal | None]
"""Returns why the series of a frame, whose definitions are known, are beyond what its sender may have."""


@dataclass(frozen=True, slots=True)
class Post:
    """One request's frames, checked as far as their bytes alone allow.

    Attributes:
        home: Tenant, region and cluster of its records.
        keys: Of each frame, by which it is known to be a repeat.
        faults: Index of a frame -> why its inline definitions could not be read.
    """

    identity: Identity
    home: tuple[str, str, str]
    body: bytes
    heads: tuple[HeadView, ...]
    keys: tuple[int, ...]
    ingest_time_ms: int
    faults: Mapping[int, Refusal] = field(default_factory=dict)


@dataclass(slots=True)
class Verdict:
    """What is to be done with a post.

    Attributes:
        records: (key, value) for the topic `ingest`.
        repeat_keys: To be remembered once the records are durable.
        accepted: Heads of the frames among the records; columns of them may be in `rejected`.
        duplicate, refused: Frames; an accepted one with refused columns is not among them.
        rejected: (index of the frame, what was refused of it).
        rows: Tick rows by outcome: accepted, duplicate, quarantined, rejected.
        dropped_rows: Tick rows not stored, by the code of their refusal.
    """

    records: list[Pair] = field(default_factory=list)
    repeat_keys: dict[int, None] = field(default_factory=dict)
    accepted: list[HeadView] = field(default_factory=list)
    duplicate: int = 0
    refused: int = 0
    rejected: list[tuple[int, Refusal]] = field(default_factory=list)
    rows: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    dropped_rows: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))


def read_post(identity: Identity, body: bytes, ingest_time_ms: int) -> Post:
    """Split a body and check it as a whole: every checksum, and every collector and host against the token.

    Raises:
        Rejected(truncated, bad_frame, bad_checksum, frame_too_large, unsupported_version, collector_not_allowed,
            host_not_allowed): Nothing of the body may be stored.
    """
    heads = tuple(split(body))
    asked: tuple[str, str] | None = None
    for head in heads:
        who = (head.collector_id, head.host_id)
        if who != asked:
            _require_sender(identity, *who)
            asked = who
    for index, head in enumerate(heads):
        try:
            check_body(body, head)
        except Rejected as error:
            message = f"frame {index} of collector {head.collector_id} on host {head.host_id}: {error.message}"
            raise Rejected(error.code, message, error.hint) from error
    return post_of(identity, body, heads, ingest_time_ms)


def post_of(identity: Identity, body: bytes, heads: tuple[HeadView, ...], ingest_time_ms: int) -> Post:
    """Return the post of a body that needs no checks."""
    tenant_id, cluster_id = identity.tenant_id, identity.cluster_id
    keys = tuple([repeat_key(tenant_id, cluster_id, head) for head in heads])
    return Post(identity, (tenant_id, identity.region, cluster_id), body, heads, keys, ingest_time_ms)


def cost_of(post: Post, repeats: Repeats) -> tuple[int, int]:
    """Return the (values, bytes) of the frames of a post that are not known to be repeats, each frame once."""
    values = size_bytes = 0
    seen: set[int] = set()
    for head, key in zip(post.heads, post.keys, strict=True):
        if key not in repeats and key not in seen:
            seen.add(key)
            values += head.values
            size_bytes += head.header_bytes + head.body_bytes
    return values, size_bytes


def admit(
    post: Post, known: KnownDefinitions, repeats: Repeats, bounds: Bounds, refuse_series: RefuseSeries
) -> Verdict:
    """Decide about each frame of a post whose definitions were looked up.

    Raises:
        Rejected(schema_unknown): A definition is not known; nothing may be stored.
        Rejected(host_not_allowed): Entities are of a host that the token may not write of; likewise.
    """
    verdict = Verdict()
    for index, (head, key) in enumerate(zip(post.heads, post.keys, strict=True)):
        refusal = post.faults.get(index) or _refusal(post, head, known, bounds)
        is_repeat = key in repeats or key in verdict.repeat_keys
        if not (is_repeat or isinstance(refusal, Refusal)):
            refusal = refuse_series(head) or refusal
        if isinstance(refusal, Refusal):
            _refuse(verdict, post, index, refusal)
        elif is_repeat:
            verdict.duplicate += 1
            verdict.rows["duplicate"] += head.rows
        else:
            verdict.repeat_keys[key] = None
            _accept(verdict, post, head)
            verdict.rejected.extend((index, column) for column in refusal)
    return verdict


def require_host(identity: Identity, collector_id: str, host_id: str) -> None:
    """Refuse a host that an identity may not write of.

    Raises:
        Rejected(host_not_allowed).
    """
    if host_id and not identity.allows_host(collector_id, host_id):
        message = f"the token {identity.name!r} may not write of host {host_id!r} as collector {collector_id!r}"
        raise Rejected("host_not_allowed", message, "use the token of this host, or widen its pattern")


def answer_body(verdict: Verdict, received_ms: int, sent_ms: int) -> bytes:
    """Return the JSON that tells a sender what became of its frames; accepted frames may have refused columns."""
    rejected = [
        {"index": index, "code": refusal.code, "message": refusal.message}
        | ({"metric": refusal.metric} if refusal.metric else {})
        for index, refusal in verdict.rejected[:REJECTED_MAXIMUM]
    ]
    answer = {
        "accepted": len(verdict.accepted),
        "duplicate": verdict.duplicate,
        "rejected": rejected,
        "receivedMs": received_ms,
        "sentMs": sent_ms,
    }
    more = len(verdict.rejected) - len(rejected)
    return orjson.dumps(answer | {"rejectedMore": more} if more else answer)


def unknown_definitions(hashes: Sequence[bytes], post: Post) -> Rejected:
    """Return the refusal of a post whose definitions are not known."""
    named = set(hashes)
    senders = sorted({head.collector_id for head in post.heads if named & {head.schema_hash, head.entities_hash}})
    return Rejected(
        "schema_unknown",
        f"{len(named)} definitions of {', '.join(senders[:5])} are not known",
        "send these frames again with their definitions inside",
    )


def _require_sender(identity: Identity, collector_id: str, host_id: str) -> None:
    if not identity.allows_collector(collector_id):
        message = f"the token {identity.name!r} may not write as collector {collector_id!r}"
        raise Rejected("collector_not_allowed", message, "use the token of this collector, or widen its pattern")
    require_host(identity, collector_id, host_id)


def _refusal(post: Post, head: HeadView, known: KnownDefinitions, bounds: Bounds) -> Refusal | tuple[Refusal, ...]:
    """Return why the whole frame is refused, or the columns that are."""
    try:
        columns, entities_host_id = known.admitted(head)
    except Rejected as error:
        if error.code == "schema_unknown":
            raise
        return Refusal(error.code, error.message)
    if not head.host_id or (head.rows and head.interval_ms < 1):
        return Refusal("bad_frame", f"collector {head.collector_id} sent a frame without host or cadence")
    if entities_host_id != head.host_id:
        require_host(post.identity, head.collector_id, entities_host_id)
    return refused_time(head, post.ingest_time_ms, bounds) or columns


def _accept(verdict: Verdict, post: Post, head: HeadView) -> None:
    verdict.accepted.append(head)
    verdict.rows["accepted"] += head.rows
    body = post.body[head.start : head.end]
    verdict.records.append(record(RecordType.FRAME, post.home, head.host_id, post.ingest_time_ms, body))


def _refuse(verdict: Verdict, post: Post, index: int, refusal: Refusal) -> None:
    head = post.heads[index]
    stage = stage_of(refusal.code)
    verdict.refused += 1
    verdict.rejected.append((index, refusal))
    verdict.rows["quarantined" if stage == QUARANTINE else "rejected"] += head.rows
    verdict.dropped_rows[refusal.code] += head.rows
    body = _refused_body(post, head, refusal, stage)
    verdict.records.append(record(RecordType.REFUSED, post.home, head.host_id, post.ingest_time_ms, body))


def _refused_body(post: Post, head: HeadView, refusal: Refusal, stage: str) -> bytes:
    payload = post.body[head.start : min(head.end, head.start + REFUSED_PAYLOAD_BYTES)]
    return orjson.dumps(
        {
            "code": refusal.code,
            "message": refusal.message,
            "collector_id": head.collector_id,
            "host_id": head.host_id,
            "kind": head.kind.value,
            "rows": head.rows,
            "values": head.values,
            "first_tick_ms": head.first_tick_ms if head.ticks else None,
            "last_tick_ms": head.last_tick_ms if head.ticks else None,
            "spool_id": head.spool_id,
            "first_sequence": head.first_sequence,
            "last_sequence": head.last_sequence,
            "correction_ms": head.correction_ms,
            "stage": stage,
            "payload_base64": base64.b64encode(payload).decode(),
        }
    )
