"""Keep definition blobs (frame schemas, entity tables) by the hash of their bytes.

A hash is checked against its blob before it is stored, so nobody can give another meaning to frames that exist.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from sqlalchemy import Engine, Row, Select, bindparam, insert, select
from sqlalchemy.exc import IntegrityError

from secondsight.access.metadata import DEFINITIONS, reading, writing
from secondsight.errors import Rejected, Retryable

HASH_BYTES = 16
_READ_CHUNK = 500  # a statement takes a bounded number of parameters
_WRITE_TRIES = 5


def definition_hash(blob: bytes) -> bytes:
    """Return the 16 bytes that name a blob."""
    return blake2b(blob, digest_size=HASH_BYTES).digest()


def put_definitions(metadata: Engine, blobs: Mapping[bytes, bytes], now_ms: int) -> int:
    """Store blobs by hash and return how many were not there; safe beside other processes that do the same.

    Raises:
        Rejected(definition_hash_wrong): A blob is not what its hash says; nothing was stored.
        Retryable: Others kept being faster.
    """
    for digest, blob in blobs.items():
        if definition_hash(blob) != digest:
            raise Rejected("definition_hash_wrong", f"definition {digest.hex()} does not match its bytes")
    lacking = dict(blobs)
    for _ in range(_WRITE_TRIES):
        rows = [{"hash": digest, "blob": blob, "created_ms": now_ms} for digest, blob in lacking.items()]
        try:
            if rows:
                with writing(metadata) as connection:
                    connection.execute(insert(DEFINITIONS), rows)
        except IntegrityError:
            there = stored_definitions(metadata, lacking)
            lacking = {digest: blob for digest, blob in lacking.items() if digest not in there}
        else:
            return len(rows)
    raise Retryable("these definitions are being written by others")


def get_definition(metadata: Engine, digest: bytes) -> bytes | None:
    """Return the blob of a hash, or None."""
    return get_definitions(metadata, (digest,)).get(digest)


def get_definitions(metadata: Engine, digests: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return hash -> blob for those that are stored."""
    return {bytes(row.hash): bytes(row.blob) for row in _rows(metadata, _BLOBS, digests)}


def stored_definitions(metadata: Engine, digests: Iterable[bytes]) -> set[bytes]:
    """Return the hashes that are stored."""
    return {bytes(row.hash) for row in _rows(metadata, _HASHES, digests)}


_THESE = DEFINITIONS.c.hash.in_(bindparam("hashes", expanding=True))
_HASHES = select(DEFINITIONS.c.hash).where(_THESE)
_BLOBS = select(DEFINITIONS.c.hash, DEFINITIONS.c.blob).where(_THESE)


def _rows(metadata: Engine, statement: Select[Any], digests: Iterable[bytes]) -> Iterator[Row[Any]]:
    wanted = list(dict.fromkeys(digests))
    with reading(metadata) as connection:
        for start in range(0, len(wanted), _READ_CHUNK):
            yield from connection.execute(statement, {"hashes": wanted[start : start + _READ_CHUNK]})
