"""Keep definition blobs (frame schemas, entity tables) by the hash of their bytes.

A hash is checked against its blob before it is stored, so nobody can give another meaning to frames that exist.
"""

from collections.abc import Iterable
from hashlib import blake2b

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from secondsight.access.metadata import DEFINITIONS
from secondsight.errors import Rejected

HASH_BYTES = 16
_READ_CHUNK = 500  # SQLite takes a bounded number of parameters


def definition_hash(blob: bytes) -> bytes:
    """Return the 16 bytes that name a blob."""
    return blake2b(blob, digest_size=HASH_BYTES).digest()


def put_definition(metadata: Engine, digest: bytes, blob: bytes, now_ms: int) -> bool:
    """Store a blob; return False where it was there.

    Raises:
        Rejected(definition_hash_wrong): The blob is not what its hash says.
    """
    if definition_hash(blob) != digest:
        raise Rejected("definition_hash_wrong", f"definition {digest.hex()} does not match its bytes")
    try:
        with metadata.begin() as connection:
            connection.execute(insert(DEFINITIONS).values(hash=digest, blob=blob, created_ms=now_ms))
    except IntegrityError:
        return False
    return True


def get_definition(metadata: Engine, digest: bytes) -> bytes | None:
    """Return the blob of a hash, or None."""
    with metadata.connect() as connection:
        found = connection.execute(select(DEFINITIONS.c.blob).where(DEFINITIONS.c.hash == digest)).scalar()
    return None if found is None else bytes(found)


def get_definitions(metadata: Engine, digests: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return hash -> blob for those that are stored."""
    wanted = list(dict.fromkeys(digests))
    found: dict[bytes, bytes] = {}
    with metadata.connect() as connection:
        for start in range(0, len(wanted), _READ_CHUNK):
            chunk = wanted[start : start + _READ_CHUNK]
            rows = connection.execute(
                select(DEFINITIONS.c.hash, DEFINITIONS.c.blob).where(DEFINITIONS.c.hash.in_(chunk))
            )
            found.update((bytes(row.hash), bytes(row.blob)) for row in rows)
    return found
