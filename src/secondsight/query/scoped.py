"""Turn a table and a scope into a subquery that holds nothing outside the scope.

This is the one place that writes a table's name into SQL. Every door of the read side goes through it, so a predicate
that is written here is written everywhere.
"""

from collections.abc import Iterable, Sequence

from secondsight.access.scope import Scope
from secondsight.catalog.secondary import MARK
from secondsight.errors import Rejected
from secondsight.query.statement import Parameters, select
from secondsight.store.coarse import LEVELS
from secondsight.store.spec import quoted

NOTHING = "0"

_PLAIN = (f"position(part, '{MARK}') = 0",)
"""Rows that are samples; the others only say what many of them were together."""
_PREDICATE_COLUMNS = ("tenant_id", "cluster_id", "host_id", "entity", "owner_team", "job_id", "model_id")
_ATTRIBUTED = frozenset({"allocations", "events", "event_history", "infos", "histograms_1s"})
_BY_ENTITY = frozenset({"entities"})
_BY_HOST = frozenset({"plans", "progress"})
_BY_CLUSTER = frozenset({"rewrites", "rollups_through"})
_OF_SAMPLES = ("_1s", "_30s", *(f"_{level.name}" for level in LEVELS))


class ScopedTables:
    """Writes references to tables, each narrowed to what one scope admits.

    Raises:
        TypeError: The scope is not a `Scope`; nothing is read without one.
    """

    def __init__(self, scope: Scope, parameters: Parameters) -> None:
        if not isinstance(scope, Scope):
            raise TypeError("nothing is read without a Scope")
        self._scope = scope
        self._parameters = parameters

    def table(
        self,
        name: str,
        columns: Sequence[str],
        where: Sequence[str] = (),
        *,
        tail: Sequence[str] = (),
        final: bool = False,
    ) -> str:
        """Return a subquery over the rows of a table that are in scope.

        With `final`, rows of one key are merged first; that is needed where rewrites may be unmerged.
        """
        _refuse_hiding(columns)
        source = f"{quoted(name)} FINAL" if final else quoted(name)
        return select(columns, source, where=[*self._predicates(name), *where], tail=tail)

    def check_metric(self, name: str) -> None:
        """Refuse a metric that the scope denies.

        Raises:
            Rejected(forbidden_metric): The grant does not show it.
        """
        if name in self._scope.denied_metrics:
            raise Rejected("forbidden_metric", f"your grant does not show {name}", "ask an administrator for it")

    def _predicates(self, name: str) -> list[str]:
        place = self._within("tenant_id", self._scope.tenant_ids)
        cluster = [] if self._scope.clusters is None else [self._within("cluster_id", self._scope.clusters)]
        return [place, *cluster, *self._owned(name), *(_PLAIN if name.endswith("_1s") else ())]

    def _owned(self, name: str) -> list[str]:
        """Return what narrows a table to allocated seconds; tables that cannot be narrowed hold nothing."""
        attribution = self._attribution()
        if not attribution or name in _BY_CLUSTER:
            return []
        if name in _ATTRIBUTED or name.endswith(_OF_SAMPLES):
            return attribution
        if name in _BY_ENTITY:
            return [self._allocated("tenant_id", "cluster_id", "entity")]
        if name in _BY_HOST:
            return [self._allocated("tenant_id", "cluster_id", "host_id")]
        return [NOTHING]

    def _attribution(self) -> list[str]:
        sets = (
            ("owner_team", self._scope.teams),
            ("job_id", self._scope.jobs),
            ("model_id", self._scope.model_ids),
        )
        return [self._within(column, values - {""}) for column, values in sets if values is not None]

    def _allocated(self, *columns: str) -> str:
        return f"({', '.join(columns)}) IN {self.table('allocations', columns)}"

    def _within(self, column: str, values: Iterable[str]) -> str:
        admitted = tuple(values)
        return f"{column} IN {self._parameters.bind_texts(admitted)}" if admitted else NOTHING


def _refuse_hiding(columns: Sequence[str]) -> None:
    """Refuse a column that takes the name of one that a scope is tested on: the engine would test the new one."""
    for column in columns:
        if column.rpartition(" AS ")[2].strip("`") in _PREDICATE_COLUMNS and " AS " in column:
            raise ValueError(f"{column!r} hides a column that scopes are tested on")
