"""Remember what each event id was first used for, so that one id never means two things.

An id is known by a hash, as is what it stands for. The first to use an id keeps it, whichever gateway it came to; ids
are forgotten a while after they were first used.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sqlalchemy import Engine, bindparam, delete, insert, select
from sqlalchemy.exc import IntegrityError

from secondsight.access.metadata import EVENT_IDS, reading, writing
from secondsight.clock import Clock
from secondsight.errors import Retryable

KEPT_MS = 31 * 86_400_000
"""How long an id is remembered after its first use."""

FORGET_SECONDS = 3600.0
_CHUNK = 500  # a statement takes a bounded number of parameters
_TRIES = 5
_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class Claim:
    """An id and what it is to stand for, both as 16 bytes."""

    id_hash: bytes
    content_hash: bytes


@dataclass(frozen=True, slots=True)
class Held:
    """What an id stands for, and whether it was used before."""

    content_hash: bytes
    is_new: bool


def id_hash(tenant_id: str, event_id: str) -> bytes:
    """Return what stands for an id of a tenant."""
    return blake2b(f"{tenant_id}\0{event_id}".encode(), digest_size=_HASH_BYTES).digest()


class EventIds:
    """Claims ids for one gateway, and forgets old ones once an hour. Every call blocks; one thread uses it."""

    def __init__(self, metadata: Engine, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._forgotten_at: float | None = None

    def claim(self, claims: Sequence[Claim]) -> dict[bytes, Held]:
        """Return what each id stands for from now on; see `claim_ids`.

        Raises:
            Retryable: As `claim_ids`.
        """
        now = self._clock.monotonic_seconds()
        if self._forgotten_at is None or now - self._forgotten_at >= FORGET_SECONDS:
            self._forgotten_at = now
            forget_ids(self._metadata, self._clock.now_ms())
        return claim_ids(self._metadata, claims, self._clock.now_ms())


def claim_ids(metadata: Engine, claims: Iterable[Claim], now_ms: int) -> dict[bytes, Held]:
    """Return what each id stands for from now on; of two claims of one id the first counts.

    Raises:
        Retryable: The store is away, or others kept being faster.
    """
    wanted: dict[bytes, bytes] = {}
    for claim in claims:
        wanted.setdefault(claim.id_hash, claim.content_hash)
    for _ in range(_TRIES):
        known = _stored(metadata, wanted)
        lacking = {name: content for name, content in wanted.items() if name not in known}
        rows = [{"id_hash": name, "content_hash": content, "first_ms": now_ms} for name, content in lacking.items()]
        try:
            if rows:
                with writing(metadata) as connection:
                    connection.execute(insert(EVENT_IDS), rows)
        except IntegrityError:
            continue
        held = {name: Held(content, is_new=False) for name, content in known.items()}
        return held | {name: Held(content, is_new=True) for name, content in lacking.items()}
    raise Retryable("these event ids are being claimed by others")


def forget_ids(metadata: Engine, now_ms: int) -> int:
    """Forget ids that were first used long ago; return how many.

    Raises:
        Retryable: The store is away.
    """
    with writing(metadata) as connection:
        return connection.execute(delete(EVENT_IDS).where(EVENT_IDS.c.first_ms < now_ms - KEPT_MS)).rowcount


_THESE = select(EVENT_IDS.c.id_hash, EVENT_IDS.c.content_hash).where(
    EVENT_IDS.c.id_hash.in_(bindparam("names", expanding=True))
)


def _stored(metadata: Engine, wanted: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    names = list(wanted)
    found: dict[bytes, bytes] = {}
    with reading(metadata) as connection:
        for start in range(0, len(names), _CHUNK):
            rows = connection.execute(_THESE, {"names": names[start : start + _CHUNK]})
            found.update((bytes(row.id_hash), bytes(row.content_hash)) for row in rows)
    return found
