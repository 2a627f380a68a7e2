"""Turn new lines of trainers' and engines' logs into ticks; see `contracts.Reader`.

Files are found by patterns of paths, read where the last reading ended, and their lines matched against the rules of
`patterns.toml` and of the operator. Where reading ended is kept beside the spool.
"""

import glob
import logging
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from secondsight.agent.counts import Counts
from secondsight.agent.training.config import LogFiles, LogsConfig
from secondsight.agent.training.extract import extract
from secondsight.agent.training.kept import Keeper
from secondsight.agent.training.lines import cleaned
from secondsight.agent.training.logrun import LogRun, Subject
from secondsight.agent.training.patterns import load_patterns
from secondsight.agent.training.read import Place
from secondsight.agent.training.tail import Tail
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.mapping.cells import ContentBuilder, Gathered, count_discarded, plain_text
from secondsight.model import EntityKind

logger = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""How often new files are looked for."""
JOB_CHARACTERS = 64
SAVE_SECONDS = 10.0
"""How often it is kept where reading of lines that said nothing ended."""
PATHS_MAXIMUM = 10_000
RUNS_KEPT = 256


class _Followed:
    """One file with its lines' memory and the run that they are of."""

    def __init__(self, tail: Tail, subject: Subject, zone: tzinfo) -> None:
        self.tail = tail
        self.subject = subject
        self.zone = zone
        self.memory: dict[str, str] = {}


class LogReader:
    """Follows the logs that the settings name. Not thread-safe; one thread calls it.

    Raises:
        Rejected: `bad_patterns`.
    """

    name = "logs"

    def __init__(self, config: LogsConfig, place: Place, catalog: Catalog, clock: Clock, counts: Counts) -> None:
        self.interval_ms = place.interval_ms
        self._config = config
        self._place = place
        self._catalog = catalog
        self._clock = clock
        self._counts = counts
        self._patterns = load_patterns(catalog, config.patterns)
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._followed: dict[str, _Followed] = {}
        self._runs: dict[str, LogRun] = {}
        self._keeper = Keeper(place.kept_file)
        found = self._keeper.load()
        state = found[0] if found is not None and isinstance(found[0], dict) else {}
        self._kept_files: dict[str, Any] = dict(state.get("files", {}))
        self._kept_runs: dict[str, Any] = dict(state.get("runs", {}))
        self._first_look = found is None
        self._has_news = False
        self._next_look = self._saved_at = clock.monotonic_seconds()

    def read(self, tick_ms: int) -> Tick:
        """Read what was written since the last tick."""
        now = self._clock.monotonic_seconds()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._look()
        discarded = Counter[str]()
        left = self._config.bytes_per_tick // max(len(self._followed), 1)
        for followed in list(self._followed.values()):
            self._read_file(followed, left, now, tick_ms)
            discarded.update(followed.tail.counts)
            followed.tail.counts.clear()
        gathered = Gathered()
        for run in list(self._runs.values()):
            run.gather(now, gathered)
            discarded.update(run.discarded)
            run.discarded.clear()
            if run.is_silent(now):
                self._keep(self._runs.pop(run.subject.entity))
        count_discarded(gathered)
        self._counts.add_discarded(gathered.discarded)
        for reason, count in discarded.items():
            self._counts.add(f"logs:{reason}", count)
        if self._has_news or now - self._saved_at >= SAVE_SECONDS:
            self._save()
        return Tick(self._builder.build(gathered, self._clock.now_ms() - tick_ms), self.name, self.name)

    def close(self) -> None:
        """Keep where reading ended, and close the files."""
        if self._followed:
            self._save()
        for followed in self._followed.values():
            followed.tail.close()
        self._followed.clear()
        self._keeper.close()

    def _read_file(self, followed: _Followed, limit_bytes: int, now: float, tick_ms: int) -> None:
        for raw in followed.tail.lines(limit_bytes):
            for line in cleaned(raw, followed.zone, tick_ms):
                said = extract(self._patterns, line, followed.memory)
                if said is not None:
                    self._has_news = True
                    self._run_of(followed.subject, now).take(said, line.time_ms, now, tick_ms)

    def _run_of(self, subject: Subject, now: float) -> LogRun:
        run = self._runs.get(subject.entity)
        if run is None:
            run = self._runs[subject.entity] = self._restored(subject, now)
        return run

    def _keep(self, run: LogRun) -> None:
        """Keep what a run that fell silent added up to, for when it goes on."""
        while len(self._kept_runs) >= RUNS_KEPT:
            del self._kept_runs[next(iter(self._kept_runs))]
        self._kept_runs[run.subject.entity] = run.kept()

    def _restored(self, subject: Subject, now: float) -> LogRun:
        said = self._kept_runs.pop(subject.entity, None)
        try:
            return LogRun(subject, self._catalog, now, said)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("counts of %s begin anew, as what was kept of them is of no use: %r", subject.entity, error)
            return LogRun(subject, self._catalog, now)

    def _look(self) -> None:
        """Find files to follow, and let go of those that are no more."""
        found = dict(self._paths())
        for path in self._followed.keys() - found.keys():
            self._followed.pop(path).tail.close()
        for path, files in found.items():
            if path not in self._followed:
                self._followed[path] = self._follow(path, files)
        self._first_look = False

    def _paths(self) -> Iterator[tuple[str, LogFiles]]:
        """Give the newest files of all patterns, with their settings."""
        found: dict[str, tuple[float, LogFiles]] = {}
        for files in self._config.files:
            for number, path in enumerate(glob.iglob(files.glob, recursive=True)):  # noqa: PTH207 # absolute patterns
                if number >= PATHS_MAXIMUM:
                    logger.warning("%s names more than %d files, the rest is not looked at", files.glob, PATHS_MAXIMUM)
                    break
                modified = _modified(path)
                if modified is not None:
                    found.setdefault(path, (modified, files))
        newest = sorted(found, key=lambda path: (-found[path][0], path))[: self._config.files_maximum]
        return ((path, found[path][1]) for path in newest)

    def _follow(self, path: str, files: LogFiles) -> _Followed:
        at_end = self._first_look and not files.from_start
        said = self._kept_files.pop(path, {})
        tail = Tail(Path(path), said if isinstance(said, dict) else {}, at_end=at_end)
        return _Followed(tail, self._subject(path, files), ZoneInfo(files.zone) if files.zone else UTC)

    def _subject(self, path: str, files: LogFiles) -> Subject:
        node = self._place.host_id
        if files.engine:
            return Subject(EntityKind.INFERENCE, f"{node}:{files.engine}", node)
        found = [match["job"] for match in re.finditer(files.job_pattern, path) if match["job"]]
        job = files.job or (found[-1] if found else Path(path).stem)
        return Subject(EntityKind.TRAINING, plain_text(job, JOB_CHARACTERS).replace("/", "_"), node)

    def _save(self) -> None:
        self._saved_at, self._has_news = self._clock.monotonic_seconds(), False
        files = {path: followed.tail.kept() for path, followed in self._followed.items()}
        runs = self._kept_runs | {entity: run.kept() for entity, run in self._runs.items()}
        try:
            self._keeper.save({"files": files, "runs": runs}, self._clock.now_ms())
        except OSError as error:
            self._counts.add("training_state_not_kept")
            logger.warning("%s cannot be written, lines would be read again: %s", self._place.kept_file, error)


def _modified(path: str) -> float | None:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return None
