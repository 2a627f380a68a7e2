"""Count the series that a tenant writes, and how many of them are new, against its quota.

Agents' series are those of the definitions that their frames name: entities times columns, whether every cell has a
value or not. They are forgotten when they were not written for an hour at the latest, half an hour at the earliest.
Those of foreign senders are counted one by one by whoever numbers them.
"""

from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secondsight.access.quotas import DEFAULT_QUOTA, Quota
from secondsight.clock import Clock
from secondsight.gateway.buckets import Bucket

ACTIVE, NEW = "series_quota", "new_series_quota"
"""Codes of refusals."""

REMEDY = "`secondsight tenants quota` shows and sets how many it may have"

GENERATION_SECONDS = 1800.0
START_SECONDS = 600.0
"""So long after its start a gateway takes up to all active series for known: it has forgotten which ones were."""

KEYS_MAXIMUM = 500_000
"""Of one tenant, some 350 bytes each: an agent has a dozen. Further ones are refused as series are."""

Entities = NDArray[np.uint64]
"""Ascending hashes of the entities, with their parts, of one table."""

Key = tuple[str, str, bytes]
"""Cluster, collector, schema."""


class Written(NamedTuple):
    """What was last written under a key.

    Attributes:
        table: Hash of the entity table.
        series: Entities times columns.
    """

    table: bytes
    entities: Entities
    series: int


class Actives:
    """Active series of one tenant. Safe from several threads.

    Args:
        quota: Of the tenant.
        started: When the gateway was started, monotonic seconds.
        now: Likewise.
        keys_maximum: How many collectors, each with its schemas, are remembered.
    """

    def __init__(self, quota: Quota, started: float, now: float, keys_maximum: int = KEYS_MAXIMUM) -> None:
        self._keys_maximum = keys_maximum
        self._lock = Lock()
        self._lent_until = started + START_SECONDS
        self._turned = now
        self._recent: dict[Key, Written] = {}
        self._before: dict[Key, Written] = {}
        self._before_series = 0
        self._limit = 0
        self._new: Bucket | None = None
        self.series = 0
        self.set_quota(quota, now)

    def set_quota(self, quota: Quota, now: float) -> None:
        """Go by a quota from now on."""
        with self._lock:
            self._limit = quota.active_series
            per_minute = quota.new_series_per_minute
            if not per_minute:
                self._new = None
            elif self._new is None:
                self._new = Bucket(per_minute / 60, per_minute, now)
                if now < self._lent_until:
                    self._new.give_back(max((self._limit or DEFAULT_QUOTA.active_series) - per_minute, 0))
            else:
                self._new.change(per_minute / 60, per_minute, now)

    def knows(self, key: Key, table: bytes, now: float) -> bool:
        """Tell whether a key was written with this entity table lately; then nothing is to be asked."""
        if now - self._turned > GENERATION_SECONDS:
            self._turn(now)
        found = self._recent.get(key)
        return found is not None and found.table == table

    def admit(self, key: Key, table: bytes, entities: Entities, columns: int, now: float) -> str:
        """Return why frames of these definitions are refused, or "" and count their series."""
        with self._lock:
            old = self._recent.get(key) or self._before.get(key)
            if old is None and len(self._recent) + len(self._before) >= self._keys_maximum:
                return ACTIVE
            news = entities.size if old is None else np.setdiff1d(entities, old.entities, assume_unique=True).size
            series = entities.size * columns
            code = self._code(news * columns, series - (old.series if old else 0), now)
            if not code:
                self._put(key, Written(table, entities, series))
        return code

    def admit_one(self, now: float) -> str:
        """Return why a further series of a foreign sender is refused, or "" and count it."""
        with self._lock:
            code = self._code(1, 1, now)
            self.series += not code
        return code

    def forget(self, series: int, *, are_back_soon: bool) -> None:
        """Count series of a foreign sender no more; those that are numbered anew are not new when they come back."""
        with self._lock:
            self.series -= series
            if are_back_soon and self._new is not None:
                self._new.give_back(series)

    def words(self, tenant_id: str, code: str) -> str:
        """Return what a refusal of a tenant's series says."""
        if code == ACTIVE:
            return f"tenant {tenant_id} has {self.series} active series, and no more are taken; {REMEDY}"
        return f"tenant {tenant_id} has too many new series a minute; {REMEDY}"

    def _code(self, news: int, growth: int, now: float) -> str:
        if self._limit and growth > 0 and self.series + growth > self._limit:
            return ACTIVE
        if self._new is None or not news:
            return ""
        self._end_start(now)
        if self._new.wait_seconds(now):
            return NEW
        self._new.take(news)
        return ""

    def _put(self, key: Key, written: Written) -> None:
        for generation in (self._recent, self._before):
            old = generation.pop(key, None)
            if old is not None:
                self.series -= old.series
                self._before_series -= old.series if generation is self._before else 0
        self._recent[key] = written
        self.series += written.series

    def _turn(self, now: float) -> None:
        """Forget what was not written since the generation before."""
        with self._lock:
            if now - self._turned > 2 * GENERATION_SECONDS:
                self._before.update(self._recent)
                self._before_series, self._recent = sum(one.series for one in self._before.values()), {}
            self.series -= self._before_series
            self._before, self._recent, self._turned = self._recent, {}, now
            self._before_series = sum(written.series for written in self._before.values())

    def _end_start(self, now: float) -> None:
        """Take back, once, what was lent at the start."""
        if self._new is not None and now >= self._lent_until:
            self._lent_until = float("inf")
            self._new.cut()


class OwnSeries:
    """The series of one foreign sender among those of its tenant. Used by one thread at a time."""

    def __init__(self, actives: Actives, tenant_id: str, clock: Clock) -> None:
        self._actives = actives
        self._tenant_id = tenant_id
        self._clock = clock
        self._held = 0
        self._is_closed = False

    def refuse(self) -> tuple[str, str]:
        """Return the code and the words by which a further series is refused, empty ones where it is taken."""
        code = self._actives.admit_one(self._clock.monotonic_seconds())
        if code:
            return code, self._actives.words(self._tenant_id, code)
        self._held += 1
        if self._is_closed:
            self.forget(are_back_soon=False)
        return "", ""

    def forget(self, *, are_back_soon: bool) -> None:
        """Forget all of them; those that are numbered anew are not new when they come back."""
        self._actives.forget(self._held, are_back_soon=are_back_soon)
        self._held = 0

    def close(self) -> None:
        """Forget all of them; what a request under way still adds is not counted."""
        self._is_closed = True
        self.forget(are_back_soon=False)
