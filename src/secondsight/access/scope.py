"""Turn the grants of an identity into scopes: what a read may see.

A box of rows: a row is inside when it is inside every field. A scope is one box, or the union of several; two boxes
become one only where that admits no further row, so nothing is ever widened by adding grants up.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Engine, RowMapping, insert, select, update

from secondsight.access.identity import Identity, Role
from secondsight.access.metadata import GRANTS, reading, writing
from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class Grant:
    """What one subject may read. None means all; an empty set means nothing.

    Attributes:
        denied_metrics: Catalogue names that this grant does not show.
    """

    tenant_id: str
    clusters: frozenset[str] | None = None
    teams: frozenset[str] | None = None
    jobs: frozenset[str] | None = None
    model_ids: frozenset[str] | None = None
    denied_metrics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Scope:
    """Boxes of rows that a read may see. Every reader must apply every field of every box; None means all.

    A box with `teams`, `jobs` or `model_ids` set holds only seconds that are allocated to one of them: rows without
    allocation, and node and fabric rows, are outside it.

    Attributes:
        tenant_ids: Never empty.
        denied_metrics: Catalogue names that must not be read, filtered on, or ordered by.
        subject: Who reads, for the audit: `token:<id>` or `user:<id>`.
        others: Further boxes; the fields above are those of the first one alone.
    """

    tenant_ids: tuple[str, ...]
    clusters: frozenset[str] | None
    teams: frozenset[str] | None
    jobs: frozenset[str] | None
    denied_metrics: frozenset[str]
    subject: str
    role: Role
    model_ids: frozenset[str] | None = None
    others: tuple["Scope", ...] = ()

    def __post_init__(self) -> None:
        """Refuse a scope without a tenant, which a compiler could take for all of them."""
        if not self.tenant_ids or not all(self.tenant_ids):
            raise Rejected("no_grant", f"{self.subject} has no grant to read", "ask an administrator for a grant")

    @property
    def boxes(self) -> "tuple[Scope, ...]":
        """Return its boxes, each as a scope of its own."""
        return (self if not self.others else replace(self, others=()), *self.others)

    @property
    def is_attributed(self) -> bool:
        """Tell whether some box admits only seconds that are allocated to someone named."""
        return any(names is not None for box in self.boxes for names in (box.teams, box.jobs, box.model_ids))

    @property
    def whole(self) -> "Scope | None":
        """Return the boxes that hold whole clusters, or None."""
        return united([box for box in self.boxes if not box.is_attributed])

    @property
    def owned(self) -> "Scope | None":
        """Return the boxes that hold only seconds allocated to someone named, or None."""
        return united([box for box in self.boxes if box.is_attributed])

    @property
    def all_tenant_ids(self) -> tuple[str, ...]:
        """Return the tenants of every box, sorted."""
        return tuple(sorted({tenant_id for box in self.boxes for tenant_id in box.tenant_ids}))

    def admits_cluster(self, tenant_id: str, cluster_id: str) -> bool:
        """Tell whether it holds a cluster whole, so that what is said of the cluster itself may be seen."""
        return any(
            tenant_id in box.tenant_ids and (box.clusters is None or cluster_id in box.clusters)
            for box in self.boxes
            if not box.is_attributed
        )

    def owns(self, tenant_id: str) -> bool:
        """Tell whether it holds all of a tenant, so that its subject may say who else sees it."""
        return any(
            tenant_id in box.tenant_ids and box.clusters is None and not box.denied_metrics
            for box in self.boxes
            if not box.is_attributed
        )

    def shows(self, metric: str) -> bool:
        """Tell whether some box shows a metric."""
        return any(metric not in box.denied_metrics for box in self.boxes)

    def showing(self, metric: str) -> "Scope":
        """Return the boxes that show a metric.

        Raises:
            Rejected(forbidden_metric): None does.
        """
        found = united([box for box in self.boxes if metric not in box.denied_metrics])
        if found is None:
            raise Rejected("forbidden_metric", f"your grant does not show {metric}", "ask an administrator for it")
        return found


def united(boxes: Sequence[Scope]) -> Scope | None:
    """Return the scope that admits what one of some boxes admits, or None where there is no box."""
    return replace(boxes[0], others=tuple(boxes[1:])) if boxes else None


def scope_of(identity: Identity, metadata: Engine, tenant_id: str | None = None) -> Scope:
    """Return the scope of an identity, or of its grants in one tenant.

    Raises:
        Rejected(role_cannot_read): A collector's token only writes.
        Rejected(no_grant): The identity may read nothing (there).
    """
    first, *others = scopes_of(identity, metadata, tenant_id)
    return replace(first, others=tuple(others))


def scopes_of(identity: Identity, metadata: Engine, tenant_id: str | None = None) -> tuple[Scope, ...]:
    """Return the fewest boxes found that together admit exactly what the identity's grants admit; at least one.

    Raises:
        Rejected(role_cannot_read): A collector's token only writes.
        Rejected(no_grant): The identity may read nothing (there).
    """
    if identity.role is Role.COLLECTOR:
        raise Rejected("role_cannot_read", "a collector token only writes", "use a viewer, operator or admin token")
    grants = [grant for grant in read_grants(metadata, identity.subject) if tenant_id in (None, grant.tenant_id)]
    boxes = merge_scopes([_scope(identity, grant) for grant in grants])
    if not boxes:
        raise Rejected("no_grant", f"{identity.subject} has no grant to read", "ask an administrator for a grant")
    return boxes


def merge_scopes(scopes: Sequence[Scope]) -> tuple[Scope, ...]:
    """Join scopes of one subject pairwise for as long as joining two of them adds no row and no metric."""
    boxes = list(dict.fromkeys(scopes))
    while (pair := _joinable(boxes)) is not None:
        first, second, joined = pair
        boxes = [box for box in boxes if box not in (first, second)] + [joined]
    return tuple(boxes)


def add_grant(metadata: Engine, subject: str, grant: Grant, now_ms: int, source: str = "") -> int:
    """Store one grant of a subject and return its id; `source` says what gave it where that was no person."""
    row = {name: _to_text(getattr(grant, name)) for name in (*_SETS, "denied_metrics")}
    with writing(metadata) as connection:
        values = {"subject": subject, "tenant_id": grant.tenant_id, "created_ms": now_ms, "source": source, **row}
        made = connection.execute(insert(GRANTS).values(**values)).inserted_primary_key
        return int(made[0]) if made else 0


def read_grants(metadata: Engine, subject: str) -> tuple[Grant, ...]:
    """Return the grants of a subject that were not revoked, oldest first."""
    live = select(GRANTS).where(GRANTS.c.subject == subject, GRANTS.c.revoked_ms.is_(None)).order_by(GRANTS.c.grant_id)
    with reading(metadata) as connection:
        rows = connection.execute(live).mappings().all()
    return tuple(map(grant_of_row, rows))


def grant_of_row(row: RowMapping) -> Grant:
    """Return the grant that a row of the table of grants stands for."""
    return Grant(
        tenant_id=row["tenant_id"],
        clusters=_from_text(row["clusters"]),
        teams=_from_text(row["teams"]),
        jobs=_from_text(row["jobs"]),
        model_ids=_from_text(row["model_ids"]),
        denied_metrics=_from_text(row["denied_metrics"]) or frozenset(),
    )


def revoke_grants(metadata: Engine, subject: str, now_ms: int) -> int:
    """Revoke every grant of a subject and return how many there were."""
    live = update(GRANTS).where(GRANTS.c.subject == subject, GRANTS.c.revoked_ms.is_(None))
    with writing(metadata) as connection:
        return connection.execute(live.values(revoked_ms=now_ms)).rowcount


_SETS = ("clusters", "teams", "jobs", "model_ids")


def _scope(identity: Identity, grant: Grant) -> Scope:
    return Scope(
        tenant_ids=(grant.tenant_id,),
        clusters=grant.clusters,
        teams=grant.teams,
        jobs=grant.jobs,
        denied_metrics=grant.denied_metrics,
        subject=identity.subject,
        role=identity.role,
        model_ids=grant.model_ids,
    )


def _joinable(boxes: Sequence[Scope]) -> tuple[Scope, Scope, Scope] | None:
    for position, first in enumerate(boxes):
        for second in boxes[position + 1 :]:
            joined = _join(first, second)
            if joined is not None:
                return first, second, joined
    return None


def _join(first: Scope, second: Scope) -> Scope | None:
    """Return the box that is exactly the union of two, or None where there is no such box."""
    if _covers(first, second):
        return first
    if _covers(second, first):
        return second
    if first.denied_metrics != second.denied_metrics:
        return None
    differing = [name for name in ("tenant_ids", *_SETS) if getattr(first, name) != getattr(second, name)]
    if len(differing) != 1:
        return None
    if differing == ["tenant_ids"]:
        return replace(first, tenant_ids=tuple(sorted({*first.tenant_ids, *second.tenant_ids})))
    name = differing[0]
    return _with_set(first, name, getattr(first, name) | getattr(second, name))


def _with_set(scope: Scope, name: str, values: frozenset[str]) -> Scope:
    match name:
        case "clusters":
            return replace(scope, clusters=values)
        case "teams":
            return replace(scope, teams=values)
        case "jobs":
            return replace(scope, jobs=values)
        case _:
            return replace(scope, model_ids=values)


def _covers(outer: Scope, inner: Scope) -> bool:
    return (
        set(outer.tenant_ids) >= set(inner.tenant_ids)
        and outer.denied_metrics <= inner.denied_metrics
        and all(_contains(getattr(outer, name), getattr(inner, name)) for name in _SETS)
    )


def _contains(outer: frozenset[str] | None, inner: frozenset[str] | None) -> bool:
    return outer is None or (inner is not None and outer >= inner)


def _to_text(values: Iterable[str] | None) -> str | None:
    return None if values is None else json.dumps(sorted(values))


def _from_text(stored: str | None) -> frozenset[str] | None:
    return None if stored is None else frozenset(json.loads(stored))
