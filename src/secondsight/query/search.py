"""Find what a text names: clusters, hosts, GPUs, jobs, teams and AI models of a scope."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from secondsight.access.scope import Scope
from secondsight.errors import Rejected
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement
from secondsight.query.windows import time_bounds

BACK_MS = 92 * 86_400_000
"""Jobs, teams and models are looked for among allocations of so long."""
OWNERS_MAXIMUM = 2_000
LENGTH_MAXIMUM = 200


class Found(StrEnum):
    """What something is."""

    CLUSTER = "cluster"
    HOST = "host"
    GPU = "gpu"
    JOB = "job"
    TEAM = "team"
    MODEL = "model"


_OWNERS = ((Found.JOB, "job_id"), (Found.TEAM, "owner_team"), (Found.MODEL, "model_id"))


@dataclass(frozen=True, slots=True)
class Match:
    """One thing of a scope; `cluster_id` and `host_id` are "" where it has none."""

    kind: Found
    tenant_id: str
    name: str
    cluster_id: str = ""
    host_id: str = ""


class SearchReader:
    """Finds things. Safe from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def read(self, text: str, scope: Scope, now_ms: int) -> tuple[Match, ...]:
        """Return what has a text in its name: whole names first, then beginnings, then the others.

        Raises:
            Rejected(bad_search): The text is empty or too long.
            Retryable: The store is away or busy.
        """
        wanted = text.strip().lower()
        if not wanted or len(wanted) > LENGTH_MAXIMUM:
            raise Rejected("bad_search", f"a search is for 1 to {LENGTH_MAXIMUM} characters", "add q=gpu-host")
        found = {match for match in self._places(scope) if wanted in match.name.lower()}
        found |= set(self._owners(wanted, scope, now_ms))
        return tuple(sorted(found, key=lambda one: _rank(one, wanted)))

    def _places(self, scope: Scope) -> Iterable[Match]:
        for row in self._inventory.places(scope):
            tenant, cluster, host, gpu = row
            yield Match(Found.CLUSTER, tenant, cluster, cluster)
            yield Match(Found.HOST, tenant, host, cluster, host)
            if gpu:
                yield Match(Found.GPU, tenant, gpu, cluster, host)

    def _owners(self, wanted: str, scope: Scope, now_ms: int) -> Iterable[Match]:
        for kind, column in _OWNERS:
            rows = self._inventory.read(compile_owners(column, wanted, Span(now_ms - BACK_MS, now_ms), scope))
            for row in rows.to_pylist():
                yield Match(kind, row["tenant_id"], row["name"])


def compile_owners(column: str, wanted: str, span: Span, scope: Scope) -> Statement:
    """Return the statement for names in one column of the allocations that begin in a range and hold a text."""
    parameters = Parameters()
    holds = f"positionCaseInsensitiveUTF8({column}, {parameters.bind(wanted, 'String')}) > 0"
    where = [*time_bounds("start_time", span, parameters), holds]
    columns = ["DISTINCT tenant_id", f"{column} AS name"]
    limit = [f"ORDER BY length(name), name LIMIT {OWNERS_MAXIMUM}"]
    rows = ScopedTables(scope, parameters).table("allocations", columns, where, tail=limit)
    return Statement(rows[1:-1], parameters.values())


def _rank(one: Match, wanted: str) -> tuple[int, int, str, str, str]:
    name = one.name.lower()
    distance = 0 if name == wanted else 1 if name.startswith(wanted) else 2
    return (distance, list(Found).index(one.kind), one.name, one.tenant_id, one.host_id)
