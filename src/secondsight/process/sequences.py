"""Remember which frames were taken in lately, so that exact repeats cost nothing.

It saves work and carries no correctness: a frame that is forgotten and comes again is settled cell by cell. So it is
bounded by spools and by frames of each, whatever their number, and an earlier process leaves none of it behind: what is
read again from the committed offset fills it, and older repeats find their rows in the store.
"""

from secondsight.wire.envelope import Envelope
from secondsight.wire.header import HeadView

Owner = tuple[str, str, str, int]
"""Tenant, cluster, collector, spool."""
FrameKey = tuple[Owner, bytes]
"""Owner, digest of the head."""

DIGEST_BYTES = 8


class Seen:
    """Digests of the newest frames of each spool; spools that send nothing are forgotten first.

    Args:
        spools: That are remembered; up to twice as many while they come and go.
        frames: That are remembered of each; up to twice as many.
    """

    def __init__(self, spools: int = 1 << 17, frames: int = 32) -> None:
        self._spools = spools
        self._kept_bytes = frames * DIGEST_BYTES
        self._young: dict[Owner, bytearray] = {}
        self._old: dict[Owner, bytearray] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __contains__(self, key: FrameKey) -> bool:
        owner, digest = key
        digests = self._young.get(owner) or self._old.get(owner)
        return digests is not None and _has(digests, digest)

    def add(self, key: FrameKey) -> None:
        """Remember a frame."""
        owner, digest = key
        digests = self._young.get(owner)
        if digests is None:
            digests = self._young[owner] = self._old.pop(owner, bytearray())
            if len(self._young) > self._spools:
                self._old, self._young = self._young, {}
        digests += digest
        if len(digests) > 2 * self._kept_bytes:
            del digests[: self._kept_bytes]


def frame_key(envelope: Envelope, view: HeadView) -> FrameKey:
    """Return what two exact repeats of a frame have in common: their heads hold the body's checksum."""
    owner = (envelope.tenant_id, envelope.cluster_id, view.collector_id, view.spool_id)
    digest = hash(envelope.body[: view.header_bytes]) & 0xFFFF_FFFF_FFFF_FFFF
    return owner, digest.to_bytes(DIGEST_BYTES, "little")


def _has(digests: bytearray, digest: bytes) -> bool:
    place = digests.find(digest)
    while place > 0 and place % DIGEST_BYTES:
        place = digests.find(digest, place + 1)
    return place >= 0
