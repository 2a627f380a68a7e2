"""Turn the stays of GPUs into events of the history: that a card was first seen in a host, and when it had moved.

The rows of `entities` are written anew while a card is seen; of each stay only what changed is told, once for its
beginning and once for its end, and it is never overwritten.
"""

from collections.abc import Iterable, Iterator

from secondsight.model import EntityKind
from secondsight.process.enrich import NOBODY
from secondsight.process.land import Row, attribution_row, hash64, own_provenance

METRIC, SOURCE = "gpu_stay", "processor"
SEEN, MOVED, VOID = 1, 2, 3
"""Versions of a stay."""

_Key = tuple[str, str, str, str, str, int]


class Stays:
    """Which stays were told by this process. One thread uses it; telling one again is telling the same."""

    def __init__(self) -> None:
        self._told: set[_Key] = set()

    def events(self, rows: Iterable[Row], now_ms: int) -> Iterator[Row]:
        """Give the event of each stay among rows of `entities` that began or ended."""
        for row in rows:
            if row["kind"] != EntityKind.GPU.value or row["part"]:
                continue
            names = (row["tenant_id"], row["cluster_id"], row["host_id"], row["entity"], row["collector_id"])
            key: _Key = (*names, row["from_time"])
            if key not in self._told:
                self._told.add(key)
                yield _event({**row, "to_time": None}, SEEN, now_ms)
            if row["to_time"] is not None:
                self._told.discard(key)
                yield _event(row, VOID if row["to_time"] <= row["from_time"] else MOVED, now_ms)


def _event(row: Row, version: int, now_ms: int) -> Row:
    return {
        "tenant_id": row["tenant_id"],
        "region": row["region"],
        "cluster_id": row["cluster_id"],
        "host_id": row["host_id"],
        "entity": row["entity"],
        "part": "",
        "kind": EntityKind.GPU.value,
        "metric": METRIC,
        "event_time": row["from_time"],
        "end_time": row["to_time"],
        "code": 0,
        "severity": "",
        "text_hash": hash64(row["collector_id"]),
        "event_version": version,
        "attributes": {"gpu_model": row["gpu_model"], "rack": row["rack"]},
        **own_provenance(SOURCE, row["collector_id"], now_ms),
        **attribution_row(NOBODY),
    }
