"""Say who holds how much of something that is bounded, and who must wait while there is too much of it.

A share is a tenant's part by weight, divided equally among the places (region and cluster) of the tenant that hold
something. Whoever is within their share is never kept out for what others hold; the shares add up to the whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

URGENT_PART = 4
"""What is urgent has one part in so many of a limit for itself, beside all else."""

Place = tuple[str, str]
"""Region and cluster."""


class Flow(NamedTuple):
    """Whose load something is."""

    tenant_id: str
    place: Place


class Entry(NamedTuple):
    """What a request is let in by.

    Attributes:
        urgent: All of it is of priority class P0: events and states, which go before everything else.
    """

    flow: Flow
    urgent: bool = False


@lru_cache(maxsize=4096)
def entry_of(tenant_id: str, region: str, cluster_id: str, urgent: bool) -> Entry:
    """Return the entry of a place; requests share a few of them."""
    return Entry(Flow(tenant_id, (region, cluster_id)), urgent)


NOBODY = Entry(Flow("", ("", "")))
"""What cannot be said to be of a tenant."""


@dataclass(slots=True)
class _Tenant:
    weight: int
    places: dict[Place, int] = field(default_factory=dict)


class Shares:
    """Amounts held, by tenant and place. Every call takes the same time, however many there are.

    Args:
        weight_of: Returns a tenant's weight; asked when it begins to hold something.
    """

    def __init__(self, weight_of: Callable[[str], int]) -> None:
        self._weight_of = weight_of
        self._tenants: dict[str, _Tenant] = {}
        self._weights = 0
        self.total = 0

    def take(self, flow: Flow, amount: int) -> None:
        """Count what a flow holds more."""
        if not amount:
            return
        tenant = self._tenants.get(flow.tenant_id)
        if tenant is None:
            tenant = self._tenants[flow.tenant_id] = _Tenant(self._weight_of(flow.tenant_id))
            self._weights += tenant.weight
        tenant.places[flow.place] = tenant.places.get(flow.place, 0) + amount
        self.total += amount

    def give_back(self, flow: Flow, amount: int) -> None:
        """Count what a flow holds less; whoever holds nothing is forgotten."""
        if not amount:
            return
        tenant = self._tenants[flow.tenant_id]
        self.total -= amount
        left = tenant.places[flow.place] - amount
        if left:
            tenant.places[flow.place] = left
            return
        del tenant.places[flow.place]
        if not tenant.places:
            self._weights -= tenant.weight
            del self._tenants[flow.tenant_id]

    def held(self, flow: Flow) -> int:
        """Return what a flow holds."""
        tenant = self._tenants.get(flow.tenant_id)
        return 0 if tenant is None else tenant.places.get(flow.place, 0)

    def share(self, flow: Flow, whole: float) -> float:
        """Return a flow's share of a whole, beside those who hold something now."""
        tenant = self._tenants.get(flow.tenant_id)
        if tenant is None:
            weight = self._weight_of(flow.tenant_id)
            return whole * weight / (self._weights + weight)
        places = len(tenant.places) + (flow.place not in tenant.places)
        return whole * tenant.weight / self._weights / places

    def is_within(self, flow: Flow, whole: float) -> bool:
        """Tell whether a flow holds no more than its share of a whole."""
        return self.held(flow) <= self.share(flow, whole)

    def by_tenant(self) -> dict[str, int]:
        """Return what each tenant holds."""
        return {tenant_id: sum(tenant.places.values()) for tenant_id, tenant in self._tenants.items()}


class Holdings:
    """Amounts held of one thing, apart for what is urgent.

    Once a limit is exceeded as a whole, each flow may hold its share of it. As the shares add up to the limit, there is
    never more than twice the limit, and twice a part of it more for what is urgent.

    Args:
        weight_of: See `Shares`.

    Attributes:
        total: What all hold together.
    """

    def __init__(self, weight_of: Callable[[str], int]) -> None:
        self._common = Shares(weight_of)
        self._urgent = Shares(weight_of)
        self.total = 0

    def take(self, entry: Entry, amount: int) -> None:
        """Count what an entry holds more."""
        self.total += amount
        (self._urgent if entry.urgent else self._common).take(entry.flow, amount)

    def give_back(self, entry: Entry, amount: int) -> None:
        """Count what it holds less."""
        self.total -= amount
        (self._urgent if entry.urgent else self._common).give_back(entry.flow, amount)

    def must_wait(self, entry: Entry, limit: int, unknown: int = 0) -> bool:
        """Tell whether an entry must wait while a limit is exceeded as a whole.

        Args:
            entry: Who asks, for what it holds already.
            limit: What all together are to hold.
            unknown: Of that, what is held by nobody knows whom.
        """
        if entry.urgent:
            part = limit // URGENT_PART
            held = self._urgent
            return held.total > 2 * part or (held.total > part and not held.is_within(entry.flow, part))
        held, room = self._common, limit - unknown
        return room <= 0 or held.total > 2 * limit or not held.is_within(entry.flow, room)

    def by_tenant(self) -> dict[str, int]:
        """Return what each tenant holds."""
        common, urgent = self._common.by_tenant(), self._urgent.by_tenant()
        return {tenant: common.get(tenant, 0) + urgent.get(tenant, 0) for tenant in common.keys() | urgent.keys()}
