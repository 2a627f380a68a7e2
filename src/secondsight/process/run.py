"""Run the processor: log records in, rows of the hot store out.

One thread, one loop. A step polls the log, takes records into open windows, writes what is due and commits the offset
before which nothing unwritten is left. Records that can never be taken go to the dead letters and stop nobody; a store
or log that is away makes the step wait and do the same again.
"""

import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event as Flag

from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import LogConsumer, Polled, Store
from secondsight.errors import Retryable
from secondsight.model import EntityKind
from secondsight.process.balance import Watched
from secondsight.process.evict import Evictor
from secondsight.process.intake import Intake
from secondsight.process.settle import Settler
from secondsight.process.spans import SpanKey
from secondsight.process.world import World
from secondsight.selfmetrics import SelfMetrics

logger = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 10.0
PACE_SECONDS = 0.2
LATE_SECONDS = 0.5
"""Longest time that a step spends on loading windows for late rows, but for the batch in work."""
MAX_LATE_ROWS = 2_000_000
"""Late rows that may wait; beyond it the log is not read until some are taken in."""
REPLAY_BYTES = 2 << 20
"""What an earlier process may have written is read again in pieces of so much, each worked off before the next."""
REPLAY_SECONDS = 5.0
"""`LATE_SECONDS` while that is so: nothing fresh waits."""
FINISH_SECONDS = 5.0
LEARN_SECONDS = 5.0
"""How often the allocations that other processors landed are looked for."""
EVICT_SECONDS = 300.0
SHOW_SECONDS = 30.0
"""How often the accounts of open windows are written."""
MANY_SPANS, DUE_SECONDS = 256, 2.0
CHECKPOINT_SHARE = 10
"""Checkpoints take at most the n-th part of the time: one tells of thousands of collectors, however little came."""
LONGEST_PATIENCE_SECONDS = 30.0
"""Yet readers are told at least so often how far everything is."""
SMALL_SHARE = 8
"""A kind with less than the n-th part of the rows that wait is written half as often: an insert has a fixed cost."""


@dataclass(frozen=True, slots=True)
class ProcessorConfig:
    """How much is held and how long.

    Attributes:
        poll_bytes: Most bytes of records taken in one step.
        raw_rows: Dirty rows that are written at once.
        raw_seconds: Longest time that a row waits for being written; twice that for kinds of few rows.
        rollup_rows: Rollup rows that are written at once.
        rollup_seconds: Longest time that a closed window waits for being written.
        window_bytes: Memory of open windows; beyond it the oldest are written as they stand.
    """

    poll_bytes: int = 16 << 20
    raw_rows: int = 100_000
    raw_seconds: float = 1.0
    rollup_rows: int = 40_000
    rollup_seconds: float = 5.0
    window_bytes: int = 3 << 30


class Processor:
    """The whole processor; drive it with `step` or `run`.

    Args:
        consumer: Of the topic `ingest`; the processor closes it.
        open_definitions: Opens the topic `definitions` at its beginning, under a group that never commits.
        store: With the tables of this catalogue.

    Raises:
        Retryable: The store or the log is away; make it again.
    """

    def __init__(
        self,
        consumer: LogConsumer,
        open_definitions: Callable[[], LogConsumer],
        store: Store,
        catalog: Catalog,
        clock: Clock,
        config: ProcessorConfig | None = None,
    ) -> None:
        self.config = config or ProcessorConfig()
        self.metrics = SelfMetrics()
        self._clock = clock
        self._consumer = consumer
        self.world = World(store, catalog, clock, self.metrics)
        self._intake = Intake(self.world, open_definitions)
        self._settler = Settler(self.world)
        self.evictor = Evictor(self.world, self._settler.findings)
        self._rollup_at = self._due_at = self._shown_at = self._learnt_at = self._evicted_at = clock.monotonic_seconds()
        self._patience_seconds = 0.0
        self._raw_at = dict.fromkeys(EntityKind, self._due_at)
        self._closed = self._behind = False
        self._piece_bytes = REPLAY_BYTES // 2
        self._stop = Flag()

    def step(self, wait_seconds: float = 0.0) -> int:
        """Take in what the log has, write what is due; return the number of records taken.

        Raises:
            Retryable: The store or the log is away; call again, nothing is lost.
        """
        polled = self._poll(wait_seconds)
        self._intake.take(() if self._behind else polled.assigned)
        if self.world.late.items:
            self._piece_bytes = REPLAY_BYTES // 2
        self._catch_up()
        self._write_due()
        return len(polled.records)

    def _poll(self, wait_seconds: float) -> Polled:
        """Poll the log and hold its records, unless too many late rows wait."""
        replays = self.world.is_replaying()
        if self.world.late.rows > MAX_LATE_ROWS or (replays and self.has_more):
            self._behind = True
            return Polled((), ())
        self._piece_bytes = min(2 * self._piece_bytes, self.config.poll_bytes)
        most = self._piece_bytes if replays else self.config.poll_bytes
        polled = self._consumer.poll(most, 0.0 if self.has_more else wait_seconds)
        if polled.damaged:
            self.metrics.count("processor_damaged_records_total", polled.damaged)
        self._intake.assign(polled.assigned, polled.fresh)
        self._intake.keep(polled.records)
        self._intake.take_over()
        size = sum(len(record.value) for record in polled.records)
        self._behind = 2 * size >= most
        return polled

    def _catch_up(self) -> None:
        """Take in late pieces for a bounded time; what is left waits for the next step, or for the replay."""
        most_seconds = REPLAY_SECONDS if self.world.is_replaying() else LATE_SECONDS
        until_seconds = self._clock.monotonic_seconds() + most_seconds
        self._intake.catch_up(lambda: not self._stop.is_set() and self._clock.monotonic_seconds() <= until_seconds)

    def drain(self) -> None:
        """Take in all that the log has, then write it and commit; windows that are not due stay open.

        Raises:
            Retryable: The store or the log is away.
        """
        while self.step() or self.has_more:
            pass
        self.checkpoint()

    def finish(self) -> None:
        """Take in what the log has for a short while, then write it and commit; late work is left for the replay.

        Raises:
            Retryable: The store or the log is away.
        """
        self._stop.set()
        until_seconds = self._clock.monotonic_seconds() + FINISH_SECONDS
        while self.step() and self._clock.monotonic_seconds() < until_seconds:
            pass
        self.checkpoint()

    @property
    def has_more(self) -> bool:
        """Tell whether late work was left for the next step."""
        return bool(self.world.late.items) or self._settler.more

    def checkpoint(self) -> None:
        """Write everything that waits and commit.

        Raises:
            Retryable: The store or the log is away.
        """
        began_seconds = self._clock.monotonic_seconds()
        self.world.write_raw()
        self._settler.flush()
        self._consumer.commit(self._settler.offsets())
        self._rollup_at = self._clock.monotonic_seconds()
        self._patience_seconds = min(CHECKPOINT_SHARE * (self._rollup_at - began_seconds), LONGEST_PATIENCE_SECONDS)
        self._raw_at = dict.fromkeys(EntityKind, self._rollup_at)

    def give_up(self, partitions: Sequence[int]) -> None:
        """Write off and commit what was taken in before partitions go to another processor.

        What fails is left to it: it reads from what was committed.
        """
        try:
            self._settler.close(self._settler.due())
            self.checkpoint()
        except Retryable as error:
            logger.warning(
                "partitions %s go to another processor, which reads more of them again: %s", partitions, error
            )

    def run(self, stop: Flag) -> None:
        """Step until `stop` is set; wait and go on whenever the store or the log is away."""
        wait_seconds = 0.1
        self._stop = stop
        spare_collector()
        while not stop.is_set():
            try:
                began_seconds = self._clock.monotonic_seconds()
                self.step(PACE_SECONDS)
                self.metrics.gauge("processor_waits", 0)
                wait_seconds = 0.1
                self._pace(began_seconds)
            except Retryable as error:
                self.metrics.count("processor_retries_total")
                self.metrics.gauge("processor_waits", 1)
                logger.warning("nothing is taken in for now, and nothing is lost; it is tried again: %s", error)
                self._clock.sleep(error.retry_after_seconds or wait_seconds)
                wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)

    def _pace(self, began_seconds: float) -> None:
        """Wait a little unless the log holds more: frames that come together cost less."""
        left_seconds = began_seconds + PACE_SECONDS - self._clock.monotonic_seconds()
        if left_seconds > 0 and not self._behind and not self.has_more:
            self._clock.sleep(left_seconds)

    def watched(self) -> Watched | None:
        """Return whose windows are settled by this processor; None until it has read what was there before it started.

        For any thread.
        """
        world = self.world
        if world.is_replaying():
            return None
        keys = {*list(world.spans.open), *list(world.spans.closing), *list(world.late.items)}
        places = {code: world.place_of(code) for code in list(world.progress)}
        collectors = frozenset((tenant, cluster, name) for tenant, cluster, _, name in places.values())
        moving = {
            (*places[code][:2], places[code][3], kind.value, start) for kind, start, code in keys if code in places
        }
        changed_ms, world.changed_ms = world.changed_ms, set()
        return Watched(collectors, frozenset(moving), frozenset(changed_ms))

    def close(self) -> None:
        """Leave the log without writing or committing; may be called twice. Reading again gives the same rows."""
        if not self._closed:
            self._closed = True
            self._intake.close()
            self._consumer.close()

    def _write_due(self) -> None:
        now_seconds = self._clock.monotonic_seconds()
        self._relieve()
        if now_seconds - self._learnt_at >= LEARN_SECONDS:
            self._intake.learn()
            self._learnt_at = now_seconds
        keys = self._due(now_seconds)
        self._write_raw(now_seconds)
        if self._stop.is_set():
            keys = [key for key in keys if not self.world.spans.open[key].reopened]
            self._settler.more = False
        if keys:
            self.metrics.count("processor_windows_closed_total", self._settler.close(keys))
        if now_seconds - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now_seconds
            self.world.ledger.show_open(self._clock.now_ms())
        if now_seconds - self._rollup_at >= max(self.config.rollup_seconds, self._patience_seconds):
            self.checkpoint()
            self._evict(now_seconds)
        elif self.world.writer.rollup_rows >= self.config.rollup_rows:
            self.world.write_rollups()

    def _evict(self, now_seconds: float) -> None:
        """Let silent collectors go now and then; everything is written."""
        if now_seconds - self._evicted_at >= EVICT_SECONDS:
            self._evicted_at = now_seconds
            self.evictor.run()

    def _write_raw(self, now_seconds: float) -> None:
        """Write the kinds whose rows are many or have waited long enough."""
        waiting = self.world.dirty_rows()
        total = sum(waiting.values())
        for kind, rows in waiting.items():
            patience = self.config.raw_seconds * (2 if rows * SMALL_SHARE < total else 1)
            if rows >= self.config.raw_rows or now_seconds - self._raw_at[kind] >= patience:
                self.world.write_raw((kind,))
                self._raw_at[kind] = now_seconds

    def _due(self, now_seconds: float) -> list[SpanKey]:
        """Return the spans to close; a large site looks for them less often."""
        waits = not self._settler.more and len(self.world.spans.open) > MANY_SPANS
        if waits and now_seconds - self._due_at < DUE_SECONDS:
            return []
        self._due_at = now_seconds
        return self._settler.due()

    def _relieve(self) -> None:
        """Write the oldest windows as they stand when the open ones take too much memory."""
        while self.world.window_bytes() > self.config.window_bytes and self.world.spans.open:
            oldest = self._settler.oldest(max(1, len(self.world.spans.open) // 4))
            self.metrics.count("processor_windows_pressed_total", self._settler.close(oldest))

    @property
    def findings(self) -> int:
        """Return how many findings last."""
        return self._settler.findings.open


def spare_collector() -> None:
    """Have the garbage collector look at young objects rarely: hardly any are in cycles, and there are very many."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
