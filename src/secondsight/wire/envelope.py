"""Turn what a gateway admitted into the value of a log record and back."""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from struct import Struct

from secondsight.errors import Rejected
from secondsight.wire.schema import is_text

_HEAD = Struct("<2sBBqHHH")
_MAGIC = b"SE"
_VERSION = 1
HOSTS_REMEMBERED = 1 << 15
_MAX_TIME_MS = 253_402_300_799_999


class RecordType(IntEnum):
    """What the body of an envelope is; codes are frozen."""

    FRAME = 1
    PLAN = 2
    REFUSED = 3


_TYPES = {type_.value: type_ for type_ in RecordType}


@dataclass(frozen=True, slots=True)
class Envelope:
    """One record of the log topic `ingest`.

    Attributes:
        ingest_time_ms: Gateway's clock at admission.
        body: A frame as received, or JSON for a plan or a refusal.
    """

    type: RecordType
    tenant_id: str
    region: str
    cluster_id: str
    ingest_time_ms: int
    body: bytes


def encode_envelope(envelope: Envelope) -> bytes:
    """Return the bytes of an envelope.

    Raises:
        Rejected: `bad_envelope` when a field does not fit.
    """
    home = (envelope.tenant_id, envelope.region, envelope.cluster_id)
    return envelope_bytes(envelope.type, home, envelope.ingest_time_ms, envelope.body)


def envelope_bytes(kind: RecordType, home: tuple[str, str, str], ingest_time_ms: int, body: bytes) -> bytes:
    """Return the bytes of an envelope, of (tenant, region, cluster) and what else it holds.

    Raises:
        Rejected: `bad_envelope` when a field does not fit.
    """
    return _start(kind, home, ingest_time_ms) + body


def decode_envelope(value: bytes) -> Envelope:
    """Return the envelope of a log record's value.

    Raises:
        Rejected: `bad_envelope`.
    """
    if len(value) < _HEAD.size:
        raise Rejected("bad_envelope", f"{len(value)} bytes are no envelope")
    magic, version, code, ingest_time_ms, *lengths = _HEAD.unpack_from(value)
    body_start: int = _HEAD.size + sum(lengths)
    if magic != _MAGIC or version != _VERSION or body_start > len(value):
        raise Rejected("bad_envelope", "not an envelope of a known version, or cut")
    if code not in _TYPES or not 0 <= ingest_time_ms <= _MAX_TIME_MS:
        raise Rejected("bad_envelope", f"unknown type {code} or ingest time {ingest_time_ms}")
    tenant_id, region, cluster_id = _unpack_ids(value[_HEAD.size : body_start], *lengths)
    return Envelope(_TYPES[code], tenant_id, region, cluster_id, ingest_time_ms, value[body_start:])


@lru_cache(maxsize=HOSTS_REMEMBERED)
def partition_key(tenant_id: str, cluster_id: str, host_id: str) -> bytes:
    """Return the log key of a collector: one host's records share a partition and keep their order."""
    return blake2b("\0".join((tenant_id, cluster_id, host_id)).encode(), digest_size=8).digest()


@lru_cache(maxsize=64)
def _start(kind: RecordType, home: tuple[str, str, str], ingest_time_ms: int) -> bytes:
    """Return what comes before the body; the records of one request share it."""
    if not 0 <= ingest_time_ms <= _MAX_TIME_MS:
        raise Rejected("bad_envelope", f"the ingest time {ingest_time_ms} is out of bounds")
    ids, lengths = _pack_ids(*home)
    return _HEAD.pack(_MAGIC, _VERSION, kind, ingest_time_ms, *lengths) + ids


@lru_cache(maxsize=1024)
def _pack_ids(*texts: str) -> tuple[bytes, tuple[int, ...]]:
    """Return the ids' bytes and the length of each; senders have few of them, and every record holds them."""
    if not all(is_text(text) for text in texts):
        raise Rejected("bad_envelope", "an id is out of bounds")
    packed = [text.encode() for text in texts]
    return b"".join(packed), tuple(map(len, packed))


@lru_cache(maxsize=1024)
def _unpack_ids(value: bytes, *lengths: int) -> tuple[str, ...]:
    texts = []
    position = 0
    for length in lengths:
        try:
            texts.append(value[position : position + length].decode())
        except UnicodeDecodeError as error:
            raise Rejected("bad_envelope", "an id is not UTF-8") from error
        position += length
    if not all(is_text(text) for text in texts):
        raise Rejected("bad_envelope", "an id is too long or has a NUL")
    return tuple(texts)
