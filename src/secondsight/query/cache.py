"""Keep answers that cannot change by themselves, and share those that are being made.

An answer is kept under who may read what, what was asked, and the epoch of the data: how far each collector in scope
has come inside the range, which ranges were written again, what was expected and what was planned. Nothing is kept that
is partial, reaches past the point up to which all collectors are complete, or was written again a moment ago.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from threading import Lock
from typing import Any

import numpy as np

from secondsight.access.identity import Role
from secondsight.access.scope import Scope
from secondsight.clock import Clock
from secondsight.query.answer import Answer
from secondsight.query.gapreader import Planned
from secondsight.query.inventory import Inventory
from secondsight.query.plan import Span
from secondsight.query.progress import compile_progress, progress_of
from secondsight.query.request import MetricQuery
from secondsight.query.run import QueryRunner
from secondsight.query.scoped import ScopedTables
from secondsight.query.statement import LIMITS, ONE_THREAD, Parameters, Statement
from secondsight.selfmetrics import SelfMetrics
from secondsight.store.cancel import AskerGone
from secondsight.store.schema import raw_table, rollup_table

EPOCH_SECONDS = 0.25
KEPT_SECONDS = 60.0
QUIET_MS = 300_000
"""So long after a range was written again, its coarse rollups may be made again."""
ASKED_MAXIMUM = 10_000
EPOCHS_MAXIMUM = 1_000
SERIES_BYTES = 1_000
"""About what a series takes besides its points."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """State of the data of a range; `rewritten_ms` is when it was last written again, 0 for never."""

    digest: bytes
    rewritten_ms: int


@dataclass(frozen=True, slots=True)
class _Kept:
    answer: Answer
    size_bytes: int
    until_seconds: float


class AnswerCache:
    """Answers by key, the least lately used forgotten first. Safe from several threads.

    Args:
        size_bytes: About what all of them may take; 0 keeps none.
    """

    def __init__(self, size_bytes: int, clock: Clock) -> None:
        self._size_bytes = size_bytes
        self._clock = clock
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Return about what the answers take."""
        return self._used_bytes

    def get(self, key: Hashable) -> Answer | None:
        """Return what was kept for a key lately, or None."""
        with self._lock:
            found = self._kept.get(key)
            if found is None or found.until_seconds <= self._clock.monotonic_seconds():
                return None
            self._kept.move_to_end(key)
            return found.answer

    def put(self, key: Hashable, answer: Answer) -> None:
        """Keep an answer, unless it alone is more than a quarter of what may be kept."""
        size = size_of(answer)
        if size > self._size_bytes // 4:
            return
        kept = _Kept(answer, size, self._clock.monotonic_seconds() + KEPT_SECONDS)
        with self._lock:
            before = self._kept.pop(key, None)
            self._used_bytes += size - (before.size_bytes if before else 0)
            self._kept[key] = kept
            while self._used_bytes > self._size_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._used_bytes -= oldest.size_bytes


class CachedRunner:
    """Answers as a `QueryRunner` does, from memory where that is the same. Safe from several threads."""

    def __init__(
        self, runner: QueryRunner, cache: AnswerCache, clock: Clock, planned: Planned, metrics: SelfMetrics
    ) -> None:
        self._runner = runner
        self._cache = cache
        self._clock = clock
        self._planned = planned
        self._metrics = metrics
        self._making: dict[Hashable, Future[Answer]] = {}
        self._asked: OrderedDict[Hashable, float] = OrderedDict()
        self._epochs: OrderedDict[Hashable, tuple[float, Epoch]] = OrderedDict()
        self._lock = Lock()

    def run(self, query: MetricQuery, scope: Scope) -> Answer:
        """Return the answer to a request.

        Raises:
            Rejected, Retryable: As `QueryRunner.run`.
        """
        asked = ("run", anyone(scope), _by_second(query))
        is_cheap = self._runner.is_held(query) or query.to_ms > self._clock.now_ms()
        if is_cheap or not self._is_repeated(asked):
            return self._shared(asked, lambda: self._runner.run(query, scope))
        epoch = self.epoch(query, scope)
        key = ("run", anyone(scope), query, epoch.digest)
        found = self._cache.get(key)
        self._metrics.count("api_cache_answers_total", outcome="miss" if found is None else "hit")
        if found is not None:
            return self._as_of_now(found, query, scope)
        answer = self._shared(key, lambda: self._runner.run(query, scope))
        if is_settled(answer, epoch, self._clock.now_ms()):
            self._cache.put(key, answer)
        return answer

    def top(self, query: MetricQuery, count: int, scope: Scope, *, highest: bool = True) -> Answer:
        """Return a ranking: see `QueryRunner.top`."""
        key = ("top", anyone(scope), _by_second(query), count, highest)
        return self._shared(key, lambda: self._runner.top(query, count, scope, highest=highest))

    def epoch(self, query: MetricQuery, scope: Scope) -> Epoch:
        """Return the state of the data that a request is answered from."""
        kind, span = query.selected[0].metric.kind, Span(query.from_ms, query.to_ms)
        key = (kind, query.filters, span, scope)
        now = self._clock.monotonic_seconds()
        with self._lock:
            found = self._epochs.get(key)
        if found is not None and now - found[0] < EPOCH_SECONDS:
            return found[1]
        epoch = self._epoch(query, scope)
        with self._lock:
            self._epochs.pop(key, None)
            self._epochs[key] = (now, epoch)
            if len(self._epochs) > EPOCHS_MAXIMUM:
                self._epochs.popitem(last=False)
        return epoch

    @property
    def _inventory(self) -> Inventory:
        return self._runner.inventory

    def _epoch(self, query: MetricQuery, scope: Scope) -> Epoch:
        kind, span = query.selected[0].metric.kind, Span(query.from_ms, query.to_ms)
        rewrites = self._inventory.read(compile_epoch((raw_table(kind), rollup_table(kind)), span, scope)).to_pylist()
        progress = self._inventory.read(compile_progress(scope))
        expected = self._inventory.expected(kind, query.filters, scope)
        digest = blake2b(digest_size=16)
        digest.update(repr(rewrites).encode())
        columns = [progress[name].to_pylist() for name in ("tenant_id", "cluster_id", "collector_id", "idle")]
        reached = np.minimum(progress["watermark_ms"].to_numpy(), span.to_ms).tolist()
        digest.update(repr(sorted(zip(*columns, reached, strict=True))).encode("utf-8", "surrogatepass"))
        for name in ("start_ms", "end_ms"):
            digest.update(np.clip(expected[name].to_numpy(), span.from_ms, span.to_ms).tobytes())
        digest.update(repr(self._planned(scope, span)).encode("utf-8", "surrogatepass"))
        return Epoch(digest.digest(), int(rewrites[0]["newest_ms"]) if rewrites else 0)

    def _is_repeated(self, key: Hashable) -> bool:
        """Tell whether the same was asked a moment ago: what is asked once is not worth looking up its epoch."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            before = self._asked.pop(key, None)
            self._asked[key] = now
            if len(self._asked) > ASKED_MAXIMUM:
                self._asked.popitem(last=False)
        return before is not None and now - before < KEPT_SECONDS

    def _shared(self, key: Hashable, make: Callable[[], Answer]) -> Answer:
        """Return an answer that is being made for somebody else who asks the same and may read the same, or make it."""
        while True:
            with self._lock:
                waiting = self._making.get(key)
                if waiting is None:
                    mine = self._making[key] = Future[Answer]()
                    break
            with suppress(AskerGone):
                self._metrics.count("api_cache_answers_total", outcome="shared")
                return waiting.result()
        try:
            answer = make()
            mine.set_result(answer)
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            return answer
        finally:
            with self._lock:
                del self._making[key]

    def _as_of_now(self, answer: Answer, query: MetricQuery, scope: Scope) -> Answer:
        """Return a kept answer that says how fresh the data is by now."""
        now_ms = self._clock.now_ms()
        expected = self._inventory.expected(query.selected[0].metric.kind, query.filters, scope)
        progress = progress_of(self._inventory.progress(scope), expected, now_ms)
        fresh_ms = None if progress.newest_ms is None else max(now_ms - progress.newest_ms, 0)
        return replace(answer, freshness_ms=fresh_ms, complete_through_ms=progress.complete_through_ms)


def is_settled(answer: Answer, epoch: Epoch, now_ms: int) -> bool:
    """Tell whether an answer is whole and lies in a range that nothing but a late row changes."""
    complete_ms = answer.complete_through_ms
    is_behind = complete_ms is not None and answer.span.to_ms <= complete_ms
    return is_behind and not answer.partial and epoch.rewritten_ms <= now_ms - QUIET_MS


def compile_epoch(tables: tuple[str, ...], span: Span, scope: Scope) -> Statement:
    """Return the statement for how many ranges of some tables in a span were rewritten, and when last."""
    parameters = Parameters()
    first, last = parameters.bind(span.from_ms, "Int64"), parameters.bind(span.to_ms, "Int64")
    where = [
        f"table_name IN {parameters.bind_texts(tables)}",
        f"toUnixTimestamp64Milli(from_time) < {last}",
        f"toUnixTimestamp64Milli(to_time) > {first}",
    ]
    columns = ["toInt64(count()) AS ranges", "toUnixTimestamp64Milli(max(written_at)) AS newest_ms"]
    rows = ScopedTables(scope, parameters).table("rewrites", columns, where, final=True)
    return Statement(rows[1:-1], parameters.values(), LIMITS | ONE_THREAD)


def size_of(answer: Answer) -> int:
    """Return about how many bytes an answer takes."""
    return SERIES_BYTES + sum(SERIES_BYTES + one.times_ms.nbytes + one.values.nbytes for one in answer.series)


def anyone(scope: Scope) -> Scope:
    """Return a scope without whose it is: who may read the same gets the same."""
    boxes = [replace(box, others=(), subject="", role=Role.VIEWER) for box in scope.boxes]
    return replace(boxes[0], others=tuple(boxes[1:]))


def _by_second(query: MetricQuery) -> Any:
    return replace(query, from_ms=query.from_ms // 1000, to_ms=-(-query.to_ms // 1000))
