"""Turn what an operator points at into the hosts and GPUs that report it now, and the values that each sends.

What a row holds is counted by the row itself: the top bits of its version are the number of its values.
"""

from dataclasses import dataclass

from secondsight.access.scope import Scope
from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.request import Filters
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import Parameters, Statement, select
from secondsight.query.windows import filter_predicates, raw_bounds

LATELY_MS = 120_000
AHEAD_MS = 60_000
VALUES_SHIFT = 112

HOST_KINDS = tuple(EntityKind)


@dataclass(frozen=True, slots=True)
class Reporting:
    """One entity that reported lately; `values` of its fullest row, parts added up."""

    tenant_id: str
    cluster_id: str
    host_id: str
    kind: EntityKind
    entity: str
    values: int


def reporting(inventory: Inventory, filters: Filters, scope: Scope, now_ms: int) -> tuple[Reporting, ...]:
    """Return what reported lately of what filters admit; of GPUs or a job only the GPUs.

    Raises:
        Retryable: The store is away or busy.
    """
    kinds = (EntityKind.GPU,) if filters.gpu or filters.job else HOST_KINDS
    found: list[Reporting] = []
    for kind in kinds:
        rows = inventory.read(compile_reporting(kind, filters, scope, now_ms)).to_pylist()
        found += [
            Reporting(row["tenant_id"], row["cluster_id"], row["host_id"], kind, row["entity"], int(row["filled"]))
            for row in rows
        ]
    return tuple(found)


def compile_reporting(kind: EntityKind, filters: Filters, scope: Scope, now_ms: int) -> Statement:
    """Return the statement for the entities of a kind that have rows of late, with their values a row."""
    parameters = Parameters()
    tables = ScopedTables(scope, parameters)
    key = ["tenant_id", "cluster_id", "host_id", "entity", "part"]
    filled = f"max(toUInt32(bitShiftRight(version, {VALUES_SHIFT}))) AS filled"
    where = [
        *raw_bounds(Span(now_ms - LATELY_MS, now_ms + AHEAD_MS), parameters),
        *filter_predicates(filters, tables, parameters),
    ]
    rows = tables.table(f"{kind.value}_1s", [*key, filled], where, tail=[f"GROUP BY {', '.join(key)}"])
    whole = ["tenant_id", "cluster_id", "host_id", "entity"]
    grouped = select([*whole, "sum(filled) AS filled"], rows, tail=[f"GROUP BY {', '.join(whole)}"])
    return Statement(grouped[1:-1], parameters.values())


def one_place(found: tuple[Reporting, ...], what: str) -> tuple[str, str]:
    """Return the tenant and cluster that all of what was found is in.

    Raises:
        Rejected(not_found): Nothing was found.
        Rejected(ambiguous_target): It is in several.
    """
    places = sorted({(one.tenant_id, one.cluster_id) for one in found})
    if not places:
        raise Rejected("not_found", f"{what} has not reported lately", "check the name with /v1/gpus or /v1/clusters")
    if len(places) > 1:
        named = ", ".join(cluster for _, cluster in places)
        raise Rejected("ambiguous_target", f"{what} is in several clusters: {named}", "name the cluster too")
    return places[0]
