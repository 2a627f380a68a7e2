"""Hold tenants to their quotas: values and bytes a second, active and new series.

A request is let in while its tenant has anything left, and charged for what it brought: so no request is too large for
a quota, and on average none is exceeded. What is refused for a rate is told to come back, and nothing of it is stored;
series beyond a quota are refused for good, one by one. What this gateway knows to be a repeat is not charged.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from secondsight.access.quotas import DEFAULT_QUOTA, Quota
from secondsight.clock import Clock
from secondsight.gateway.actives import Actives
from secondsight.gateway.buckets import Bucket
from secondsight.gateway.pressure import Overloaded
from secondsight.gateway.returns import Returns
from secondsight.gateway.shares import Entry

TENANTS_MAXIMUM = 10_000
VALUES, BYTES = "values_quota", "bytes_quota"
SMOOTHING = 0.1


class OverQuota(Overloaded):
    """The tenant has sent more than its quota allows."""

    code = "over_quota"


@dataclass(slots=True)
class Allowance:
    """What a tenant may send, and has sent.

    Attributes:
        values, body_bytes: Tokens; None where there is no limit.
        series: Its active series.
        returns: When its senders come back.
        mean_values, mean_bytes: Of a request, lately.
        sent_values, sent_bytes: Ever charged.
        waits: Requests that were told to come back, by reason.
        waited: When one last was, monotonic seconds.
        refused: Frames and foreign series that were refused for good, by code.
    """

    quota: Quota
    values: Bucket | None
    body_bytes: Bucket | None
    series: Actives
    returns: Returns
    mean_values: float = 0.0
    mean_bytes: float = 0.0
    sent_values: int = 0
    sent_bytes: int = 0
    waits: Counter[str] = field(default_factory=Counter)
    waited: dict[str, float] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def charge(self, values: int, body_bytes: int) -> None:
        """Charge a request."""
        self.mean_values += SMOOTHING * (values - self.mean_values)
        self.mean_bytes += SMOOTHING * (body_bytes - self.mean_bytes)
        self._move(values, body_bytes)

    def give_back(self, values: int, body_bytes: int) -> None:
        """Undo a charge: nothing of the request was stored."""
        self._move(-values, -body_bytes)

    def _move(self, values: int, body_bytes: int) -> None:
        self.sent_values += values
        self.sent_bytes += body_bytes
        if self.values is not None:
            self.values.take(values)
        if self.body_bytes is not None:
            self.body_bytes.take(body_bytes)


class Quotas:
    """The allowances of all tenants. Lives in one event loop.

    Args:
        share: Of each tenant's rates that this gateway gives, where there are several.
    """

    def __init__(self, clock: Clock, share: float = 1.0) -> None:
        self._clock = clock
        self._share = share
        self._started = clock.monotonic_seconds()
        self._table: Mapping[str, Quota] = {}
        self._allowances: OrderedDict[str, Allowance] = OrderedDict()

    def take(self, table: Mapping[str, Quota]) -> None:
        """Go by these quotas from now on; a tenant that has none goes by the default."""
        if table == self._table:
            return
        self._table = table
        now = self._clock.monotonic_seconds()
        for tenant_id, allowance in self._allowances.items():
            quota = table.get(tenant_id, DEFAULT_QUOTA)
            if quota != allowance.quota:
                allowance.quota = quota
                allowance.values = self._bucket(allowance.values, quota.values_per_second, quota, now)
                allowance.body_bytes = self._bucket(allowance.body_bytes, quota.bytes_per_second, quota, now)
                allowance.series.set_quota(quota, now)

    def weight(self, tenant_id: str) -> int:
        """Return a tenant's weight."""
        return self._table.get(tenant_id, DEFAULT_QUOTA).weight

    def of(self, tenant_id: str) -> Allowance:
        """Return a tenant's allowance."""
        found = self._allowances.get(tenant_id)
        if found is None:
            found = self._allowances[tenant_id] = self._begun(self._table.get(tenant_id, DEFAULT_QUOTA))
            while len(self._allowances) > TENANTS_MAXIMUM:
                self._allowances.popitem(last=False)
        return found

    def require(self, entry: Entry) -> None:
        """Return if a tenant has something left; what is urgent may overdraw it by as much again as may come at once.

        Raises:
            OverQuota: It has not.
        """
        allowance = self.of(entry.flow.tenant_id)
        if allowance.values is not None:
            self._require(entry, allowance, (VALUES, "values", allowance.values, allowance.mean_values))
        if allowance.body_bytes is not None:
            self._require(entry, allowance, (BYTES, "bytes", allowance.body_bytes, allowance.mean_bytes))

    def by_tenant(self) -> Iterable[tuple[str, Allowance]]:
        """Give the tenants that sent something since the start."""
        return self._allowances.items()

    def _require(self, entry: Entry, allowance: Allowance, what: tuple[str, str, Bucket, float]) -> None:
        reason, unit, bucket, mean = what
        now = self._clock.monotonic_seconds()
        wait_seconds = bucket.wait_seconds(now, bucket.size if entry.urgent else 0.0)
        if not wait_seconds:
            return
        allowance.waits[reason] += 1
        allowance.waited[reason] = now
        raise OverQuota(
            f"tenant {entry.flow.tenant_id} has sent more than {bucket.per_second:g} {unit} a second",
            reason=reason,
            retry_after_seconds=allowance.returns.after(wait_seconds, mean / bucket.per_second),
        )

    def _begun(self, quota: Quota) -> Allowance:
        now = self._clock.monotonic_seconds()
        return Allowance(
            quota,
            self._bucket(None, quota.values_per_second, quota, now),
            self._bucket(None, quota.bytes_per_second, quota, now),
            Actives(quota, self._started, now),
            Returns(self._clock),
        )

    def _bucket(self, known: Bucket | None, per_second: int, quota: Quota, now: float) -> Bucket | None:
        if not per_second:
            return None
        rate = per_second * self._share
        size = rate * quota.burst_seconds
        if known is None:
            return Bucket(rate, size, now)
        known.change(rate, size, now)
        return known
