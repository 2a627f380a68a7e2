"""Let requests in, or tell them why and for how long to wait: one question for every route that takes data."""

from collections.abc import Iterator
from dataclasses import dataclass

from secondsight.access.identity import Identity
from secondsight.clock import Clock
from secondsight.errors import Retryable
from secondsight.gateway.config import GatewayConfig
from secondsight.gateway.pressure import Gauges, Limits, Overloaded, Pressure
from secondsight.gateway.quotas import Allowance, Quotas
from secondsight.gateway.shares import Entry, entry_of
from secondsight.gateway.turns import Turns

READ_THREADS = 4
RETRY_AFTER_SECONDS = 5.0
"""Where an error does not say when to come back."""


@dataclass(frozen=True, slots=True)
class Door:
    """What may keep a request out: the state of this gateway, and what its tenant has sent before.

    Attributes:
        turns: Where large bodies are read, so that neither the event loop nor other tenants wait for them.
    """

    pressure: Pressure
    quotas: Quotas
    turns: Turns

    async def open(self, identity: Identity, *, urgent: bool = False) -> Entry:
        """Return what a request is let in by.

        Args:
            identity: Who asks.
            urgent: All that it brings is of priority class P0.

        Raises:
            Overloaded: The sender shall come back later.
            Retryable: The log cannot be measured.
        """
        entry = entry_of(identity.tenant_id, identity.region, identity.cluster_id, urgent)
        await self.require(entry)
        return entry

    async def require(self, entry: Entry) -> None:
        """Return if a request is let in by an entry; see `open`."""
        self.quotas.require(entry)
        if self.pressure.is_stale:
            await self.pressure.measure()
        self.pressure.require_room(entry)

    def spread(self, error: Retryable) -> Retryable:
        """Return an error that tells its sender another time to come back than others are told."""
        if isinstance(error, Overloaded):
            return error
        told = RETRY_AFTER_SECONDS if error.retry_after_seconds is None else error.retry_after_seconds
        return Retryable(str(error), retry_after_seconds=self.pressure.later(told))

    def waits(self) -> Iterator[tuple[str, str, int, float]]:
        """Give who was told to come back: tenant, reason, how often, and when last, in monotonic seconds."""
        for (tenant_id, reason), number in self.pressure.waits.items():
            yield tenant_id, reason, number, self.pressure.waited[tenant_id, reason]
        for tenant_id, allowance in self.quotas.by_tenant():
            for reason, number in allowance.waits.items():
                yield tenant_id, reason, number, allowance.waited[reason]

    def allowance(self, entry: Entry) -> Allowance:
        """Return what a request is charged to."""
        return self.quotas.of(entry.flow.tenant_id)


def make_door(config: GatewayConfig, gauges: Gauges, clock: Clock) -> Door:
    """Return the door of a gateway; every tenant goes by the default quota until quotas are read."""
    quotas = Quotas(clock, config.quota_share)
    limits = Limits(
        config.backlog_bytes,
        config.log_floor_bytes,
        config.in_flight_requests,
        config.in_flight_bytes,
        config.retry_after_seconds,
        config.returns_per_second,
    )
    return Door(Pressure(gauges, limits, quotas.weight, clock), quotas, Turns(READ_THREADS, quotas.weight))
