"""Follow an operator's catalogue files while a part runs: what they add is taken up, what they would change is refused.

A metric's column holds figures of one meaning for ever, so a file may add metrics, and reword, rebound or bind those
that are there, and nothing else. Files that are wrong change nothing: the catalogue stays, and it is said why once.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from secondsight.catalog.index import Catalog
from secondsight.catalog.load import load_catalog
from secondsight.catalog.metric import Metric
from secondsight.clock import Clock
from secondsight.errors import Rejected

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
MEANING = ("kind", "unit", "type", "rollup", "dtype", "resolution", "labels", "parts_add", "bitmask")
"""What a metric is; the rest of its line may change."""
RECORD = "metrics.json"
"""File of a data folder that says what the operator's metrics are since they were first taken up."""

Facts = Mapping[str, Any]


class LivingCatalog(Catalog):
    """A catalogue that takes up later ones in place; whoever keeps it sees what they add. Safe between threads."""

    __slots__ = ()

    def renew(self, later: Catalog) -> None:
        """Be as a later catalogue, which has all of this one's metrics."""
        for field in reversed(fields(Catalog)):
            object.__setattr__(self, field.name, getattr(later, field.name))


def living(catalog: Catalog) -> LivingCatalog:
    """Return a catalogue of the same metrics that can be renewed."""
    return LivingCatalog(*(getattr(catalog, field.name) for field in fields(Catalog)))


class CatalogFiles:
    """The catalogue that some files make with the shipped metrics. For one thread at a time.

    Args:
        paths: Files of the operator.
        data: Data folder that remembers what metrics mean over restarts; None where there is none.

    Raises:
        Rejected: `bad_catalog`, or `metric_changed` where a metric means something else than before.
        OSError: A file cannot be read.
    """

    def __init__(self, paths: Sequence[Path], data: Path | None = None) -> None:
        self._paths = tuple(paths)
        self._record = None if data is None or not paths else data / RECORD
        self._seen = self._signature()
        self.catalog = load_catalog(self._paths)
        self._require_meanings(self.catalog)
        self._keep()

    def look(self) -> bool:
        """Take up what the files add; return whether they did. What is wrong with them is logged once."""
        seen = self._signature()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            later = load_catalog(self._paths)
            require_extension(self.catalog, later)
            self._require_meanings(later)
        except (Rejected, OSError, UnicodeDecodeError) as error:
            hint = f"; {error.hint}" if isinstance(error, Rejected) and error.hint else ""
            logger.error("the catalogue stays as it was, its files are not taken up: %s%s", error, hint)  # noqa: TRY400
            return False
        if later == self.catalog:
            return False
        added = len(later.metrics) - len(self.catalog.metrics)
        self.catalog = later
        self._keep()
        logger.info("the catalogue's files are taken up, with %d new metrics", added)
        return True

    def _signature(self) -> tuple[object, ...]:
        return tuple(_stamp(path) for path in self._paths)

    def _require_meanings(self, catalog: Catalog) -> None:
        """Refuse metrics that had another meaning when they were first taken up.

        Raises:
            Rejected(metric_changed).
        """
        for name, before in self._known().items():
            if name in catalog and before != meaning_of(catalog.get(name)):
                raise _changed(name, before, meaning_of(catalog.get(name)))

    def _known(self) -> Mapping[str, Facts]:
        if self._record is None or not self._record.exists():
            return {}
        try:
            found: Mapping[str, Facts] = json.loads(self._record.read_text())
        except ValueError as error:
            raise Rejected("bad_catalog", f"{self._record} is damaged: {error}", "restore it, or delete it") from None
        return found

    def _keep(self) -> None:
        """Remember what the operator's metrics mean, of those that left the files too."""
        if self._record is None:
            return
        shipped = load_catalog()
        mine = {metric.name: meaning_of(metric) for metric in self.catalog.metrics if metric.name not in shipped}
        whole = {**self._known(), **mine}
        waiting = self._record.with_name(f"{RECORD}.{threading.get_native_id()}.new")
        self._record.parent.mkdir(parents=True, exist_ok=True)
        waiting.write_text(json.dumps(whole, indent=1))
        waiting.replace(self._record)


class StopOrChange(threading.Event):
    """Set when a part is to stop, or to go on with a later catalogue.

    Args:
        stop: Ends the part.
        files: Looked at every few seconds by whoever asks.
    """

    def __init__(self, stop: threading.Event, files: CatalogFiles, clock: Clock) -> None:
        super().__init__()
        self._stop = stop
        self._files = files
        self._clock = clock
        self._looking = threading.Lock()
        self._looked_at = clock.monotonic_seconds()

    def is_set(self) -> bool:
        """Tell whether to stop or to go on anew."""
        if self._stop.is_set() or super().is_set():
            return True
        if self._clock.monotonic_seconds() - self._looked_at >= LOOK_SECONDS and self._looking.acquire(blocking=False):
            try:
                self._looked_at = self._clock.monotonic_seconds()
                if self._files.look():
                    self.set()
            finally:
                self._looking.release()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for so many seconds; return whether it is."""
        until = None if timeout is None else self._clock.monotonic_seconds() + timeout
        while not self.is_set():
            left = LOOK_SECONDS if until is None else until - self._clock.monotonic_seconds()
            if left <= 0:
                break
            self._stop.wait(min(left, LOOK_SECONDS))
        return self.is_set()


class Follower:
    """Renews a catalogue in place. For one thread.

    Args:
        files: What is followed.
        catalog: What is renewed, a while after the files changed.
        clock: Source of time.
        renewed: Called after it.
        adopt_seconds: How long others have to be ready first.
    """

    def __init__(
        self,
        files: CatalogFiles,
        catalog: LivingCatalog,
        clock: Clock,
        renewed: Callable[[], object] = lambda: None,
        adopt_seconds: float = 0.0,
    ) -> None:
        self._files = files
        self._catalog = catalog
        self._clock = clock
        self._renewed = renewed
        self._adopt_seconds = adopt_seconds
        self._due_at: float | None = None
        self._looked_at = clock.monotonic_seconds()

    def step(self) -> bool:
        """Look at the files every few seconds, and do what is due; return whether the catalogue was renewed."""
        now = self._clock.monotonic_seconds()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            if self._files.look():
                self._due_at = now + self._adopt_seconds
        if self._due_at is None or now < self._due_at:
            return False
        self._due_at = None
        self._catalog.renew(self._files.catalog)
        self._renewed()
        return True


def following(
    files: CatalogFiles, clock: Clock, stop: threading.Event, run: Callable[[Catalog, threading.Event], None]
) -> None:
    """Run something until `stop` is set, anew with each later catalogue.

    It is called with the catalogue and an event that is set when it is to return; all it holds of a catalogue ends
    with it.
    """
    while not stop.is_set():
        run(files.catalog, StopOrChange(stop, files, clock))


def require_extension(before: Catalog, after: Catalog) -> None:
    """Refuse a catalogue that lacks a metric of an earlier one, or gives it another meaning.

    Raises:
        Rejected: `metric_changed`, `metric_gone`.
    """
    for metric in before.metrics:
        if metric.name not in after:
            hint = "leave its line; `secondsight metrics stage` turns it off, and a restart lets it go"
            raise Rejected("metric_gone", f"{metric.name} is in the files no more", hint)
        then, now = meaning_of(metric), meaning_of(after.get(metric.name))
        if then != now:
            raise _changed(metric.name, then, now)


def meaning_of(metric: Metric) -> Facts:
    """Return what may never change of a metric, as JSON holds it."""
    facts = {name: getattr(metric, name) for name in MEANING}
    return {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}


def _changed(name: str, before: Facts, after: Facts) -> Rejected:
    differing = [key for key in MEANING if before.get(key) != after.get(key)]
    shown = ", ".join(f"{key} was {before.get(key)!s} and is {after.get(key)!s}" for key in differing)
    hint = "figures of both meanings would stand in one column: put the line back, and add a metric of another name"
    return Rejected("metric_changed", f"{name} means something else than before: {shown}", hint)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
