"""Read allocation facts from the store: those still needed at a start, and later those that other processors landed."""

from typing import Any

from secondsight.contracts import Store
from secondsight.process.enrich import Fact, Subject
from secondsight.process.groups import GroupKey

LEFT_MS = 8 * 86_400_000
"""What no fact names any more is forgotten so long after the last one ended."""
OVERLAP_MS = 60_000
"""How far a look goes back behind the one before: an insert is seen some time after it was stamped."""

_FACT = (
    "SELECT tenant_id, cluster_id, host_id, entity, part, job_id, workload_id, owner_team, model_id, "
    "toUnixTimestamp64Milli(start_time) AS start, if(isNull(end_time), NULL, "
    "toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end, version FROM allocations FINAL "
)
_OLD = (
    "isNotNull(end_time) AND end_time < fromUnixTimestamp64Milli({since:Int64}, 'UTC') "
    "AND landed_at < fromUnixTimestamp64Milli({since:Int64}, 'UTC')"
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
    """Return the facts that had not ended by an instant, or were landed since: those may be told again.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(f"{_FACT} WHERE NOT ({_OLD})", {"since": since_ms}).to_pylist()
    return [fact_of_row(row) for row in rows]


def versions_before(store: Store, since_ms: int) -> list[tuple[Subject, int]]:
    """Return (subject, sum of versions) of the facts that `facts_since` leaves out.

    Raises:
        Retryable: The store is busy or away.
    """
    rows = store.query(
        "SELECT tenant_id, cluster_id, entity, part, toUInt64(sum(version)) AS versions "  # noqa: S608 - a condition of this module
        f"FROM allocations FINAL WHERE {_OLD} GROUP BY ALL",
        {"since": since_ms},
    )
    return [
        ((row["tenant_id"], row["cluster_id"], row["entity"], row["part"]), row["versions"]) for row in rows.to_pylist()
    ]


def job_versions_before(store: Store, since_ms: int) -> list[tuple[GroupKey, int]]:
    """Return (group, sum of versions) of the same by job.

    Jobs that ended long before are left out: there are ever more of them.

    Raises:
        Retryable: The store is busy or away.
    """
    return _group_versions_before(store, since_ms, "job_id", "''", named="job_id")


def engine_versions_before(store: Store, since_ms: int) -> list[tuple[GroupKey, int]]:
    """Return the same by host and model.

    Raises:
        Retryable: The store is busy or away.
    """
    return _group_versions_before(store, since_ms, "toString(host_id)", "toString(model_id)", named="model_id")


def _group_versions_before(store: Store, since_ms: int, *names: str, named: str) -> list[tuple[GroupKey, int]]:
    """Return (group, sum of versions) of groups whose key has these two expressions."""
    first, second = names
    rows = store.query(
        f"SELECT tenant_id, cluster_id, {first} AS one, {second} AS other, toUInt64(sum(version)) AS versions "  # noqa: S608 - expressions of this module
        "FROM allocations FINAL "
        f"WHERE {_OLD} AND {named} != '' "
        "GROUP BY ALL HAVING max(end_time) >= fromUnixTimestamp64Milli({from:Int64}, 'UTC')",
        {"since": since_ms, "from": since_ms - LEFT_MS},
    )
    return [
        ((row["tenant_id"], row["cluster_id"], row["one"], row["other"]), row["versions"]) for row in rows.to_pylist()
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
