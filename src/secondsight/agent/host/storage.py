"""Turn probes of file systems into how long storage takes, as a job would see it.

Off by default. Each path has a thread of its own: one that hangs, as a network mount may for hours, holds up nothing
but itself, and no second probe of it is begun meanwhile. A probe opens a small file, writes and syncs it, and reads it
back. An operation that is not done in time is told as `hung` at once, and as itself when it is done.
"""

import contextlib
import logging
import os
import threading
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from secondsight.agent.counts import Counts
from secondsight.agent.host.place import Place
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.errors import Rejected
from secondsight.mapping.cells import ContentBuilder, Gathered, HistogramPoint, part_text
from secondsight.mapping.identity import PART_VALUE_CHARACTERS

logger = logging.getLogger(__name__)

BOUNDS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SECONDS_MAXIMUM = 600.0
PATHS_MAXIMUM = 16
FILE_BYTES = 4096

T = TypeVar("T")

Observe = Callable[[str, float], None]
"""Takes an operation and how long it took, in seconds."""


@dataclass(frozen=True, slots=True)
class StorageProbeConfig:
    """Settings of the storage probe.

    Attributes:
        paths: Folders to probe; the agent makes one small file in each.
        interval_ms: How often.
        timeout_seconds: After which an operation counts as hung.
    """

    paths: tuple[Path, ...]
    interval_ms: int = 30_000
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if not 1 <= len(self.paths) <= PATHS_MAXIMUM or len(set(self.paths)) != len(self.paths):
            raise Rejected("bad_config", f"agent.storage_probe: 1 to {PATHS_MAXIMUM} different paths")
        for path in self.paths:
            if not path.is_absolute() or len(str(path)) > PART_VALUE_CHARACTERS:
                raise Rejected("bad_config", f"agent.storage_probe: {path} is not an absolute path of usual length")
        if self.interval_ms < 1000 or not 0 < self.timeout_seconds <= SECONDS_MAXIMUM:
            raise Rejected("bad_config", "agent.storage_probe: interval_ms at least 1000, timeout_seconds up to 600")


@dataclass(slots=True)
class _Histogram:
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_SECONDS) + 1))
    sum_seconds: float = 0.0


class Probe:
    """Probes of one path, in a thread of its own. `ask`, `check` and `histograms` never wait for it."""

    def __init__(self, path: Path, work: Callable[[Path, Observe], None], clock: Clock) -> None:
        self.path = path
        self._work = work
        self._clock = clock
        self._lock = threading.Lock()
        self._asked = threading.Semaphore(0)
        self._ending = False
        self._since: float | None = None
        self._is_hung = False
        self._histograms: dict[str, _Histogram] = {}
        self.failed = 0
        self._thread = threading.Thread(target=self._run, name=f"storage-{path.name}"[:15], daemon=True)
        self._thread.start()

    def ask(self, timeout_seconds: float) -> bool:
        """Begin a probe if none is at work; True if the one at work has just come to count as hung."""
        now = self._clock.monotonic_seconds()
        with self._lock:
            if self._since is None:
                self._since, self._is_hung = now, False
                self._asked.release()
                return False
            if self._is_hung or now - self._since < timeout_seconds:
                return False
            self._is_hung = True
            self._add("hung", now - self._since)
            return True

    def histograms(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Return operation -> (buckets, sum in seconds) so far."""
        with self._lock:
            return {name: (tuple(one.buckets), one.sum_seconds) for name, one in sorted(self._histograms.items())}

    def end(self) -> None:
        """Let the thread end when it can; one that hangs is left to itself."""
        self._ending = True
        self._asked.release()

    def _run(self) -> None:
        while self._asked.acquire() and not self._ending:
            try:
                self._work(self.path, self._observe)
            except OSError:
                with self._lock:
                    self.failed += 1
            with self._lock:
                self._since = None

    def _observe(self, operation: str, seconds: float) -> None:
        with self._lock:
            self._add(operation, seconds)

    def _add(self, operation: str, seconds: float) -> None:
        histogram = self._histograms.setdefault(operation, _Histogram())
        bounded = min(max(seconds, 0.0), SECONDS_MAXIMUM)
        histogram.buckets[bisect_left(BOUNDS_SECONDS, bounded)] += 1
        histogram.sum_seconds += bounded


class StorageReader:
    """Tells what the probes of one host took; see `contracts.Reader`. Counts `storage_hung` and `storage_failed`."""

    def __init__(
        self, config: StorageProbeConfig, place: Place, catalog: Catalog, clock: Clock, counts: Counts
    ) -> None:
        self.name = "storage"
        self.interval_ms = config.interval_ms
        self._config = config
        self._host_id = place.host_id
        self._metric = catalog.get("node_storage_probe_duration_seconds")
        self._clock = clock
        self._counts = counts
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._started_ms = clock.now_ms()
        self._failed = 0
        name = f".secondsight-probe-{place.host_id}"
        work = FileProbe(name, clock).run
        self._probes = [Probe(path, work, clock) for path in config.paths]

    def read(self, tick_ms: int) -> Tick:
        """Tell what is known by now, and begin the next probes; waits for none."""
        for probe in self._probes:
            if probe.ask(self._config.timeout_seconds):
                self._counts.add("storage_hung")
                logger.warning(
                    "%s: storage at %s has not answered for %g s; see that the mount is alive",
                    self._host_id,
                    probe.path,
                    self._config.timeout_seconds,
                )
        failed = sum(probe.failed for probe in self._probes)
        self._counts.add("storage_failed", failed - self._failed)
        self._failed = failed
        gathered = Gathered(histograms=[self._point(*item) for item in self._known()])
        contents = self._builder.build(gathered, self._clock.now_ms() - tick_ms)
        return Tick(contents, collector=self.name, source="host")

    def close(self) -> None:
        """Let the probes end; those that hang are left to themselves."""
        for probe in self._probes:
            probe.end()

    def _known(self) -> list[tuple[Path, str, tuple[int, ...], float]]:
        return [
            (probe.path, operation, buckets, sum_seconds)
            for probe in self._probes
            for operation, (buckets, sum_seconds) in probe.histograms().items()
        ]

    def _point(self, path: Path, operation: str, buckets: tuple[int, ...], sum_seconds: float) -> HistogramPoint:
        part = part_text([("mount", str(path)), ("op", operation)])
        return HistogramPoint(self._metric, self._host_id, part, BOUNDS_SECONDS, buckets, sum_seconds, self._started_ms)


class FileProbe:
    """What a probe does with a path: one small file, of a name of its own."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock

    def run(self, folder: Path, observe: Observe) -> None:
        """Open, write, sync and read the file, telling how long each took.

        Raises:
            OSError: The folder refuses.
        """
        path = folder / self._name
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.ExitStack() as stack:
            file = self._timed("open", lambda: os.open(path, flags, 0o600), observe)
            stack.callback(os.close, file)
            data = os.urandom(FILE_BYTES)
            self._timed("write", lambda: os.pwrite(file, data, 0), observe)
            self._timed("sync", lambda: os.fsync(file), observe)
            self._timed("read", lambda: os.pread(file, FILE_BYTES, 0), observe)

    def _timed(self, operation: str, work: Callable[[], T], observe: Observe) -> T:
        began = self._clock.monotonic_seconds()
        result = work()
        observe(operation, self._clock.monotonic_seconds() - began)
        return result
