"""Say up to when coarse rollups are made for all clusters of a question."""

from typing import Any

import pyarrow as pa

from secondsight.access.scope import Scope
from secondsight.model import EntityKind
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement
from secondsight.store.clusters import WIDTHS_MS
from secondsight.store.schema import rollup_table


def compile_coarse_through(kind: EntityKind, scope: Scope) -> Statement:
    """Return the statement for up to when coarse rollups of a kind are made: one row per resolution and cluster."""
    parameters = Parameters()
    names = parameters.bind_texts(tuple(rollup_table(kind, name) for name in WIDTHS_MS))
    through = "toInt64(toUnixTimestamp(through)) * 1000 AS through_ms"
    columns = ["table_name", "tenant_id", "cluster_id", through]
    rows = ScopedTables(scope, parameters).table("rollups_through", columns, [f"table_name IN {names}"], final=True)
    return Statement(rows[1:-1], parameters.values())


def coarse_through_of(rows: Any, kind: EntityKind, expected: Any) -> tuple[tuple[str, int], ...]:
    """Sum up how far coarse rollups of the clusters of some expected entities are made.

    Those of a cluster that has just come are made up to its first row, as there was nothing before it.
    """
    starts = {(row["tenant_id"], row["cluster_id"]): row["start_ms"] for row in places_of(expected).to_pylist()}
    known: dict[str, dict[tuple[str, str], int]] = {}
    for row in rows.to_pylist():
        known.setdefault(row["table_name"], {})[row["tenant_id"], row["cluster_id"]] = row["through_ms"]
    found = []
    for name in WIDTHS_MS:
        ends = known.get(rollup_table(kind, name))
        if ends and starts:
            found.append((name, min(ends.get(place, start_ms) for place, start_ms in starts.items())))
    return tuple(found)


def places_of(expected: Any) -> Any:
    """Return tenants and clusters of expected entities, and since when something was to report; one row each."""
    names = {name: expected[name].cast(pa.string()) for name in ("tenant_id", "cluster_id")}
    rows = pa.table({**names, "start_ms": expected["start_ms"]}).group_by(list(names))
    return rows.aggregate([("start_ms", "min")]).rename_columns([*names, "start_ms"])
