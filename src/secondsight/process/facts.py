"""Read allocation facts from the store: those still needed at a start, and later those that other processors landed."""

from typing import Any

from secondsight.contracts import Store
from secondsight.process.enrich import Fact, Subject
from secondsight.process.groups import LEFT_MS

OVERLAP_MS = 60_000
"""How far a look goes back behind the one before: an insert is seen some time after it was stamped."""

_FACT = (
    "SELECT tenant_id, cluster_id, host_id, entity, part, job_id, workload_id, owner_team, model_id, "
    "toUnixTimestamp64Milli(start_time) AS start, if(isNull(end_time), NULL, "
    "toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end, version FROM allocations FINAL "
)


class FactFeed:
    """Gives the facts landed since it was asked before, by whichever processor. One thread uses it.

    Args:
        since_ms: Since when facts are news, by the store's clock.
    """

    def __init__(self, store: Store, since_ms: int) -> None:
        self._store = store
        self._since_ms = since_ms

    def reach_back(self, since_ms: int) -> None:
        """Have facts landed since an instant given once more."""
        self._since_ms = min(self._since_ms, since_ms)

    def read(self) -> list[Fact]:
        """Return facts landed since the last time, and some of those before it.

        Raises:
            Retryable: The store is busy or away.
        """
        (row,) = self._store.query("SELECT toUnixTimestamp64Milli(now64(3)) AS now").to_pylist()
        since = {"since": self._since_ms}
        rows = self._store.query(f"{_FACT} WHERE landed_at >= fromUnixTimestamp64Milli({{since:Int64}}, 'UTC')", since)
        self._since_ms = int(row["now"]) - OVERLAP_MS
        return [fact_of_row(each) for each in rows.to_pylist()]


def facts_since(store: Store, since_ms: int) -> list[Fact]:
    """Return the facts that had not ended by an instant.

    Raises:
        Retryable: The store is busy or away.
    """
    condition = "WHERE isNull(end_time) OR end_time >= fromUnixTimestamp64Milli({since:Int64})"
    return [fact_of_row(row) for row in store.query(_FACT + condition, {"since": since_ms}).to_pylist()]


def versions_before(store: Store, since_ms: int) -> list[tuple[Subject, int]]:
    """Return (subject, sum of versions) of the facts that had ended by an instant.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        "SELECT tenant_id, cluster_id, entity, part, toUInt64(sum(version)) AS versions "
        "FROM allocations FINAL WHERE end_time < fromUnixTimestamp64Milli({since:Int64}) GROUP BY ALL",
        {"since": since_ms},
    )
    return [
        ((row["tenant_id"], row["cluster_id"], row["entity"], row["part"]), row["versions"]) for row in rows.to_pylist()
    ]


def job_versions_before(store: Store, since_ms: int) -> list[tuple[tuple[str, str], str, int, int]]:
    """Return ((tenant, cluster), job, sum of versions, last end) of jobs of which facts had ended by an instant.

    Jobs that ended long before it are left out: there are ever more of them.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        "SELECT tenant_id, cluster_id, job_id, toUInt64(sum(version)) AS versions, "
        "toUnixTimestamp64Milli(assumeNotNull(max(end_time))) AS left FROM allocations FINAL "
        "WHERE end_time < fromUnixTimestamp64Milli({since:Int64}) AND job_id != '' "
        "GROUP BY ALL HAVING left >= {from:Int64}",
        {"since": since_ms, "from": since_ms - LEFT_MS},
    )
    return [
        ((row["tenant_id"], row["cluster_id"]), row["job_id"], row["versions"], row["left"]) for row in rows.to_pylist()
    ]


def fact_of_row(row: dict[str, Any]) -> Fact:
    """Return the fact that a row of `allocations` holds, with its times in ms."""
    return Fact(
        (row["tenant_id"], row["cluster_id"], row["entity"], row["part"]),
        row["host_id"],
        (row["job_id"], row["workload_id"], row["owner_team"], row["model_id"]),
        row["start"],
        row["end"],
        row["version"],
    )
