"""Read the names of what a caller may see: clusters, hosts, GPUs, jobs, teams, GPU products. Kept for a moment."""

from collections import defaultdict
from collections.abc import Iterable

from secondsight.access.scope import Scope
from secondsight.ask.known import Known
from secondsight.model import EntityKind
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.scoped import ScopedTables
from secondsight.query.search import BACK_MS, compile_owners
from secondsight.query.statement import Parameters, Statement

KEPT_SECONDS = 30.0
_OWNERS = ("job_id", "owner_team", "workload_id")


class NameReader:
    """Reads names under a scope. Safe from several threads."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def read(self, scope: Scope, now_ms: int) -> Known:
        """Return the names that a scope shows.

        Raises:
            Retryable: The store is away or busy.
        """
        found: Known = self._inventory.remember(("names", scope), KEPT_SECONDS, lambda: self._read(scope, now_ms))
        return found

    def _read(self, scope: Scope, now_ms: int) -> Known:
        names: dict[str, set[str]] = defaultdict(set)
        for _, cluster, host, gpu in self._inventory.places(scope):
            for column, name in (("cluster_id", cluster), ("host_id", host), ("gpu_id", gpu)):
                names[column].add(name)
        names["model"] |= set(self._texts(compile_products(scope)))
        span = Span(now_ms - BACK_MS, now_ms + 1)
        for column in _OWNERS:
            names[column] |= set(self._texts(compile_owners(column, "", span, scope)))
        kept = {column: frozenset(found - {""}) for column, found in names.items()}
        return Known(kept, frozenset(scope.all_tenant_ids))

    def _texts(self, statement: Statement) -> Iterable[str]:
        return [str(row["name"]) for row in self._inventory.read(statement).to_pylist()]


def compile_products(scope: Scope) -> Statement:
    """Return the statement for the products of the GPUs that a scope shows."""
    parameters = Parameters()
    of_kind = f"kind = {parameters.bind(EntityKind.GPU.value, 'String')}"
    rows = ScopedTables(scope, parameters).table("entities", ["DISTINCT gpu_model AS name"], [of_kind])
    return Statement(rows[1:-1], parameters.values())
