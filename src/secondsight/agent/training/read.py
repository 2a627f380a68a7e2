"""Turn what training jobs of this host tell into ticks; see `contracts.Reader`.

Jobs send with `secondsight.training`. The socket is opened at the first tick, and again when it was taken away.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.counts import Counts
from secondsight.agent.training.config import TrainingConfig
from secondsight.agent.training.datagram import parse
from secondsight.agent.training.kept import Keeper
from secondsight.agent.training.receive import Datagram, Receiver
from secondsight.agent.training.runs import Runs
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.errors import Rejected
from secondsight.mapping.cells import ContentBuilder, Gathered, count_discarded

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the jobs run, and where the reader keeps what must outlive it."""

    host_id: str
    rack: str
    interval_ms: int
    kept_file: Path


def is_alive(pid: int) -> bool:
    """Tell whether a process of this host is there, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class TrainingReader:
    """Reads the socket of training jobs. Not thread-safe; one thread calls it."""

    name = "training"

    def __init__(
        self,
        config: TrainingConfig,
        place: Place,
        catalog: Catalog,
        clock: Clock,
        counts: Counts,
        alive: Callable[[int], bool] = is_alive,
    ) -> None:
        self.interval_ms = place.interval_ms
        self._config = config
        self._place = place
        self._clock = clock
        self._counts = counts
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._receiver: Receiver | None = None
        self._warned: set[str] = set()
        self._keeper = Keeper(place.kept_file)
        self._runs = self._restored(catalog, alive)

    def read(self, tick_ms: int) -> Tick:
        """Take what jobs told since the last tick.

        Raises:
            Rejected: `bad_config`.
            Retryable: The socket cannot be served.
        """
        self._open()
        discarded = Counter[str]()
        for datagram in self._receiver.take() if self._receiver else ():
            self._take(datagram, tick_ms, discarded)
        gathered = Gathered(discarded=discarded)
        self._runs.gather(self._clock.monotonic_seconds(), tick_ms, gathered)
        count_discarded(gathered)
        gathered.discarded.update(self._runs.discarded)
        self._runs.discarded.clear()
        self._counts.add_discarded(gathered.discarded)
        self._save_if_due()
        begun = self._builder.build(self._runs.begun, 0) if self._runs.begun.cells else ()
        contents = self._builder.build(gathered, self._clock.now_ms() - tick_ms)
        return Tick(contents, earlier=((tick_ms - self.interval_ms, begun),) if begun else ())

    def close(self) -> None:
        """Take the socket away and keep what was counted."""
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None
            self._save()
        self._keeper.close()

    def _open(self) -> None:
        if self._receiver is not None and not self._receiver.is_served():
            logger.warning("%s was taken away, it is made again", self._config.socket)
            self._receiver.close()
            self._receiver = None
        if self._receiver is None:
            self._receiver = Receiver(self._config, self._clock)

    def _take(self, datagram: Datagram, tick_ms: int, discarded: Counter[str]) -> None:
        try:
            report = parse(datagram.data)
        except Rejected as error:
            discarded["parse"] += 1
            self._counts.add("training_datagrams_malformed")
            self._warn(f"user id {datagram.uid} sends to {self._config.socket} what is no report: {error.message}")
            return
        self._runs.take(report, datagram.heard, tick_ms, datagram.pid, datagram.uid)

    def _warn(self, text: str) -> None:
        """Log each message once, and not for ever."""
        if text not in self._warned and len(self._warned) < 20:
            self._warned.add(text)
            logger.warning("%s", text)

    def _restored(self, catalog: Catalog, alive: Callable[[int], bool]) -> Runs:
        found = self._keeper.load()
        since_ms = self._clock.now_ms() if found is None else found[1]
        runs = Runs(
            catalog,
            alive,
            node=self._place.host_id,
            runs_maximum=self._config.runs_maximum,
            known_since_ms=since_ms,
        )
        if found is not None:
            try:
                runs.restore(found[0], self._clock.monotonic_seconds())
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                logger.warning("%s is of no use, counts begin anew: %r", self._place.kept_file, error)
        return runs

    def _save_if_due(self) -> None:
        """Keep what a tick tells before it is told: counts that went out are never above those kept."""
        if self._runs.changed:
            self._save()

    def _save(self) -> None:
        self._runs.changed = False
        try:
            self._keeper.save(self._runs.kept(), self._clock.now_ms())
        except OSError as error:
            self._counts.add("training_state_not_kept")
            self._warn(f"{self._place.kept_file} cannot be written, counts would begin anew after a restart: {error}")
