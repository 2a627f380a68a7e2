"""Turn a table and a scope into a subquery that holds nothing outside the scope.

This is the one place that writes a table's name into SQL. Every door of the read side goes through it, so a predicate
that is written here is written everywhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from secondsight.access.scope import Scope
from secondsight.catalog.secondary import MARK
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
_OF_METRICS = frozenset({"events", "event_history", "infos", "histograms_1s", "dead_letters"})
"""Tables whose rows each name the metric that they are of."""
_OF_SAMPLES = ("_1s", "_30s", *(f"_{level.name}" for level in LEVELS))


class ScopedTables:
    """Writes references to tables, each narrowed to what one scope admits.

    Raises:
        TypeError: The scope is not a `Scope`; nothing is read without one.
    """

    def __init__(self, scope: Scope, parameters: Parameters) -> None:
        if not isinstance(scope, Scope):
            raise TypeError("nothing is read without a Scope")
        self._boxes = scope.boxes
        self._parameters = parameters

    def table(
        self,
        name: str,
        columns: Sequence[str],
        where: Sequence[str] = (),
        *,
        before: Sequence[str] = (),
        tail: Sequence[str] = (),
        final: bool = False,
    ) -> str:
        """Return a subquery over the rows of a table that are in scope.

        Predicates `before` the others, over columns of the order key, decide whether anything else of a row is read.
        With `final`, rows of one key are merged first; that is needed where rewrites may be unmerged.
        """
        _refuse_hiding(columns)
        source = f"{quoted(name)} FINAL" if final else quoted(name)
        return select(columns, source, before=before, where=[*self._predicates(name), *where], tail=tail)

    def check_metric(self, name: str) -> None:
        """Narrow what is written from here on to the boxes of the scope that show a metric.

        Raises:
            Rejected(forbidden_metric): No grant shows it.
        """
        self._boxes = self._showing(name)

    def shown(self, table: str, metric: str, expression: str = "") -> str:
        """Return the column of a metric in a table of samples, NULL in rows that no box shows it of.

        With an expression over columns of the metric, return that instead.

        Raises:
            Rejected(forbidden_metric): No grant shows it.
        """
        showing = self._showing(metric)
        column = expression or quoted(metric)
        if len(showing) == len(self._boxes):
            return column
        return f"if({self._either(showing, table)}, {column}, NULL)"

    def _showing(self, metric: str) -> tuple[Scope, ...]:
        return replace(self._boxes[0], others=self._boxes[1:]).showing(metric).boxes

    def _predicates(self, name: str) -> list[str]:
        plain = _PLAIN if name.endswith("_1s") else ()
        if len(self._boxes) == 1:
            return [*self._box(self._boxes[0], name), *plain]
        tenants = {tenant_id for box in self._boxes for tenant_id in box.tenant_ids}
        return [self._within("tenant_id", tenants), self._either(self._boxes, name), *plain]

    def _either(self, boxes: Sequence[Scope], name: str) -> str:
        """Return the predicate that a row of a table is inside one of some boxes."""
        inside = (f"({' AND '.join(self._box(box, name))})" for box in boxes)
        return f"({' OR '.join(inside)})" if boxes else NOTHING

    def _box(self, box: Scope, name: str) -> list[str]:
        place = self._within("tenant_id", box.tenant_ids)
        cluster = [] if box.clusters is None else [self._within("cluster_id", box.clusters)]
        denied = box.denied_metrics if name in _OF_METRICS else ()
        shown = [f"metric NOT IN {self._parameters.bind_texts(denied)}"] if denied else []
        return [place, *cluster, *self._owned(box, name), *shown]

    def _owned(self, box: Scope, name: str) -> list[str]:
        """Return what narrows a table to allocated seconds; tables that cannot be narrowed hold nothing."""
        attribution = self._attribution(box)
        if not attribution or name in _BY_CLUSTER:
            return []
        if name in _ATTRIBUTED or name.endswith(_OF_SAMPLES):
            return attribution
        if name in _BY_ENTITY:
            return [self._allocated(box, "tenant_id", "cluster_id", "entity")]
        if name in _BY_HOST:
            return [self._allocated(box, "tenant_id", "cluster_id", "host_id")]
        return [NOTHING]

    def _attribution(self, box: Scope) -> list[str]:
        sets = (("owner_team", box.teams), ("job_id", box.jobs), ("model_id", box.model_ids))
        return [self._within(column, values - {""}) for column, values in sets if values is not None]

    def _allocated(self, box: Scope, *columns: str) -> str:
        allocations = select(columns, quoted("allocations"), where=self._box(box, "allocations"))
        return f"({', '.join(columns)}) IN {allocations}"

    def _within(self, column: str, values: Iterable[str]) -> str:
        admitted = tuple(values)
        return f"{column} IN {self._parameters.bind_texts(admitted)}" if admitted else NOTHING


def _refuse_hiding(columns: Sequence[str]) -> None:
    """Refuse a column that takes the name of one that a scope is tested on: the engine would test the new one."""
    for column in columns:
        if column.rpartition(" AS ")[2].strip("`") in _PREDICATE_COLUMNS and " AS " in column:
            raise ValueError(f"{column!r} hides a column that scopes are tested on")
