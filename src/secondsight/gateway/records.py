"""Make the records that a gateway writes to the topic `ingest`, and name what it makes for those who send no frames."""

from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b

from secondsight.access.identity import Identity
from secondsight.catalog.index import Catalog
from secondsight.errors import Rejected
from secondsight.gateway.known import Definition, read_definition
from secondsight.wire.envelope import RecordType, envelope_bytes, partition_key
from secondsight.wire.schema import KnownEntities, KnownSchema

Pair = tuple[bytes, bytes]
"""Key and value."""

QUARANTINE_CODES = frozenset({"future_time", "too_old"})
QUARANTINE, DEAD_LETTER = "quarantine", "dead_letter"


def record(kind: RecordType, home: tuple[str, str, str], host_id: str, ingest_time_ms: int, body: bytes) -> Pair:
    """Return a record of a host: those of one host share a partition and keep their order.

    Args:
        kind: What it holds.
        home: Tenant, region and cluster.
        host_id: Whose it is.
        ingest_time_ms: The gateway's clock.
        body: As `Envelope` says.

    Raises:
        Rejected: `bad_envelope` when a field does not fit.
    """
    tenant_id, _, cluster_id = home
    return partition_key(tenant_id, cluster_id, host_id), envelope_bytes(kind, home, ingest_time_ms, body)


def stage_of(code: str) -> str:
    """Return the stage of what is refused for a reason: quarantine where the metric is known and its time is bad."""
    return QUARANTINE if code in QUARANTINE_CODES else DEAD_LETTER


def readers_of(named: Iterable[KnownSchema | KnownEntities], catalog: Catalog) -> dict[bytes, Callable[[], Definition]]:
    """Return what reads each of some definitions, should it not be known, by hash."""
    return {one.hash: partial(read_definition, one.blob, one.hash, catalog) for one in named}


def number_of(*parts: bytes) -> int:
    """Return 64 bits that stand for some bytes."""
    return int.from_bytes(blake2b(b"\0".join(parts), digest_size=8).digest(), "little")


def sender_name(identity: Identity) -> str:
    """Return what a foreign sender's collectors are called: a name in its token's pattern, else the token's own name.

    Raises:
        Rejected(collector_not_allowed): The token may write under neither.
    """
    plain = (part.strip() for part in identity.collector_pattern.split(","))
    for name in (*(part for part in plain if part and "*" not in part and "/" not in part), identity.name):
        if name and identity.allows_collector(name):
            return name
    message = f"the token {identity.name!r} may not write as collector {identity.name!r}"
    raise Rejected("collector_not_allowed", message, "let its collector pattern hold its own name, as prom-a,node-*")
