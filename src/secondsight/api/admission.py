"""Say who may ask now: so many requests a second of a subject, so many questions and so much time of a tenant.

Questions wait for a turn by tenant: next is the tenant that has fewest running, then the one that used least of late.
The last free turn is kept for tenants that ask little: with none running, and either one question alone or less than
half of what those who ask now used on average. So they never wait behind those that ask much, however many these are;
where all ask much it stays free, which costs nothing, as there is one turn more than cores. Lives in one event loop.
"""

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.gateway.buckets import Bucket

SUBJECTS_MAXIMUM = 20_000
HALF_LIFE_SECONDS = 30.0
LITTLE = 0.5
"""Share of what others used on average, below which a tenant asks little."""
MINUTE_SECONDS = 60.0


_asks_much: ContextVar[bool] = ContextVar("asks_much", default=False)


def asks_much() -> bool:
    """Tell whether the question that is answered here is one of several of its tenant, while other tenants ask."""
    return _asks_much.get()


class Throttled(Rejected):
    """Somebody asks more than they may now; `retry_after_seconds` is when to come back."""

    def __init__(self, limit: str, message: str, retry_after_seconds: float) -> None:
        super().__init__(limit, message, f"come back in {retry_after_seconds:.0f} s" if retry_after_seconds else "")
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be asked.

    Attributes:
        requests_per_second, requests_burst: Of one subject.
        at_once: Questions of all tenants that run.
        tenant_at_once, tenant_waiting: Questions of one tenant that run, and that wait besides.
        tenant_seconds_per_minute: Time that the questions of one tenant may take together.
        wait_seconds: How long a question waits for its turn.
    """

    requests_per_second: float
    requests_burst: float
    at_once: int
    tenant_at_once: int
    tenant_waiting: int
    tenant_seconds_per_minute: float
    wait_seconds: float


@dataclass(slots=True)
class _Tenant:
    budget: Bucket
    running: int = 0
    used_seconds: float = 0.0
    used_at: float = 0.0
    waiting: "deque[asyncio.Future[None]]" = field(default_factory=deque)


class Admission:
    """Gives out turns."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._rates: OrderedDict[str, Bucket] = OrderedDict()
        self._tenants: dict[str, _Tenant] = defaultdict(self._new_tenant)
        self._running = 0

    @property
    def running(self) -> int:
        """Return how many questions run."""
        return self._running

    def check_rate(self, subject: str) -> None:
        """Count a request of a subject.

        Raises:
            Throttled(rate_limited).
        """
        now = self._clock.monotonic_seconds()
        bucket = self._rates.get(subject)
        if bucket is None:
            bucket = self._rates[subject] = Bucket(self._limits.requests_per_second, self._limits.requests_burst, now)
            if len(self._rates) > SUBJECTS_MAXIMUM:
                self._rates.popitem(last=False)
        self._rates.move_to_end(subject)
        wait_seconds = bucket.wait_seconds(now)
        if wait_seconds:
            raise Throttled("rate_limited", "more requests come than this token may send", wait_seconds)
        bucket.take(1)

    @asynccontextmanager
    async def turn(self, tenant_id: str) -> AsyncIterator[None]:
        """Wait for a turn of a tenant, and hold it while the block runs.

        Raises:
            Throttled(query_budget, too_many_queries).
        """
        tenant = self._tenants[tenant_id]
        wait_seconds = tenant.budget.wait_seconds(self._clock.monotonic_seconds())
        if wait_seconds:
            message = "the questions of this tenant took more time than it has"
            raise Throttled("query_budget", message, wait_seconds)
        await self._enter(tenant)
        _asks_much.set((tenant.running > 1 or bool(tenant.waiting)) and any(self._others(tenant)))
        started = self._clock.monotonic_seconds()
        try:
            yield
        finally:
            self._leave(tenant_id, tenant, self._clock.monotonic_seconds() - started)

    async def _enter(self, tenant: _Tenant) -> None:
        if not tenant.waiting and self._has_turn(tenant, asking=1):
            self._begin(tenant)
            return
        if len(tenant.waiting) >= self._limits.tenant_waiting:
            raise Throttled("too_many_queries", "too many questions of this tenant wait already", 1.0)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tenant.waiting.append(mine)
        try:
            async with asyncio.timeout(self._limits.wait_seconds):
                await mine
        except (TimeoutError, asyncio.CancelledError) as error:
            if mine.done() and not mine.cancelled():
                self._end(tenant)
            elif mine in tenant.waiting:
                tenant.waiting.remove(mine)
            if isinstance(error, TimeoutError):
                raise Throttled("too_many_queries", "no turn came for this question in time", 1.0) from None
            raise

    def _begin(self, tenant: _Tenant) -> None:
        tenant.running += 1
        self._running += 1

    def _end(self, tenant: _Tenant) -> None:
        tenant.running -= 1
        self._running -= 1
        self._next()

    def _leave(self, tenant_id: str, tenant: _Tenant, seconds: float) -> None:
        tenant.budget.take(seconds)
        tenant.used_seconds = self._used(tenant) + seconds
        tenant.used_at = self._clock.monotonic_seconds()
        self._end(tenant)
        if not tenant.running and not tenant.waiting and len(self._tenants) > SUBJECTS_MAXIMUM:
            del self._tenants[tenant_id]

    def _next(self) -> None:
        """Give free turns to those that wait."""
        while True:
            able = [
                tenant
                for tenant in self._tenants.values()
                if tenant.waiting and self._has_turn(tenant, len(tenant.waiting))
            ]
            if not able:
                return
            tenant = min(able, key=lambda one: (one.running, self._used(one)))
            waiting = tenant.waiting.popleft()
            if not waiting.done():
                self._begin(tenant)
                waiting.set_result(None)

    def _has_turn(self, tenant: _Tenant, asking: int) -> bool:
        """Tell whether a tenant may begin one of the questions that it has at hand."""
        if tenant.running >= self._limits.tenant_at_once:
            return False
        free = self._limits.at_once - self._running
        return free > 1 or (free == 1 and (self._limits.at_once == 1 or self._asks_little(tenant, asking)))

    def _asks_little(self, tenant: _Tenant, asking: int) -> bool:
        if tenant.running:
            return False
        if asking == 1:
            return True
        others = [self._used(one) for one in self._others(tenant)]
        return bool(others) and self._used(tenant) < LITTLE * sum(others) / len(others)

    def _others(self, tenant: _Tenant) -> Iterator[_Tenant]:
        """Give the other tenants that ask now."""
        return (one for one in self._tenants.values() if one is not tenant and (one.running or one.waiting))

    def _used(self, tenant: _Tenant) -> float:
        age = self._clock.monotonic_seconds() - tenant.used_at
        return float(tenant.used_seconds * 0.5 ** (age / HALF_LIFE_SECONDS))

    def _new_tenant(self) -> _Tenant:
        seconds = self._limits.tenant_seconds_per_minute
        return _Tenant(Bucket(seconds / MINUTE_SECONDS, seconds, self._clock.monotonic_seconds()))
