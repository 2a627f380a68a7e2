"""Remember which frames this gateway made durable, so that a resent one is not appended twice.

An optimisation within bounded memory: correctness rests on the processor. A frame is a repeat only when its spool,
sequences, lane and body are all the same.
"""

from collections import OrderedDict
from collections.abc import Iterable

from secondsight.wire.header import HeadView

REMEMBERED_FRAMES = 200_000


class Repeats:
    """The newest durable frames, by a 64-bit hash of what makes them the same."""

    def __init__(self, remembered_frames: int = REMEMBERED_FRAMES) -> None:
        self._remembered_frames = remembered_frames
        self._known: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, key: int) -> bool:
        return key in self._known

    def add(self, keys: Iterable[int]) -> None:
        """Remember frames that are durable now."""
        for key in keys:
            self._known[key] = None
        while len(self._known) > self._remembered_frames:
            self._known.popitem(last=False)


def repeat_key(tenant_id: str, cluster_id: str, head: HeadView) -> int:
    """Return what two frames share only when they are the same; good within one process."""
    sequences = (head.spool_id, head.first_sequence, head.last_sequence)
    body = (head.kind, head.live, head.body_crc, head.body_bytes, head.schema_hash, head.entities_hash)
    return hash((tenant_id, cluster_id, head.collector_id, sequences, body))
