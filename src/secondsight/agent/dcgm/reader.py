"""Turn the latest values of a DCGM host engine into ticks.

DCGM's library is called in a process of its own: one that hangs costs its GPUs a state that says so, and the agent
nothing. Values keep the time at which the engine took them, so one that it serves for ever is stale, not new.
"""

import json
import logging
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondsight.agent.counts import Counts
from secondsight.agent.dcgm.config import DcgmSettings
from secondsight.agent.health.vitals import Facts
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.scrape.exposition import Blank, Exposition, Sample, Syntax
from secondsight.agent.scrape.mapping import Mapper
from secondsight.catalog.index import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.errors import Rejected, Retryable
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered
from secondsight.mapping.identity import Labels, Origin, gpu_id
from secondsight.model import Quality
from secondsight.wire.content import Content

logger = logging.getLogger(__name__)

STALE_PERIODS = 3
MISSES_UNRESPONSIVE = 2
"""So many readings in a row without an answer make the driver unresponsive."""

HANG_SECONDS = 60.0
END_SECONDS = 1.0
RESTART_SECONDS = 5.0
RESTART_MAXIMUM_SECONDS = 60.0

STATUS_QUALITIES = {
    "not_supported": Quality.ABSENT_NOT_SUPPORTED,
    "no_permission": Quality.ABSENT_NO_PERMISSION,
    "stale": Quality.STALE,
}


@dataclass(frozen=True, slots=True)
class DcgmPlace:
    """Which host is read.

    Attributes:
        known: Learns which GPU has which PCI address.
        turn_files: Where processes of the host take turns in starting the driver, see `agent.turn`.
    """

    host_id: str
    rack: str = ""
    known: KnownGpus | None = None
    turn_files: tuple[Path, ...] = ()


class DcgmReader:
    """Reads one host engine; see `contracts.Reader`."""

    def __init__(
        self, settings: DcgmSettings, place: DcgmPlace, catalog: Catalog, clock: Clock, counts: Counts
    ) -> None:
        folder = settings.folder()
        if folder is None:
            hint = (
                "install the package datacenter-gpu-manager, or set agent.dcgm.bindings to the folder of its bindings"
            )
            raise Rejected("bad_config", "agent.dcgm: the Python bindings of DCGM are not there", hint)
        self.name = "dcgm"
        self.interval_ms = settings.interval_ms
        self._host_id = place.host_id
        self._catalog = catalog
        self._clock = clock
        self._counts = counts
        self._timeout_seconds = settings.timeout_seconds or 0.7 * settings.interval_ms / 1000
        self._names = field_names(catalog)
        fields = [one for one in settings.fields or tuple(self._names) if settings.profiling or not 1001 <= one <= 1099]
        told = {"bindings": str(folder), "address": settings.address, "intervalMs": settings.interval_ms}
        files = [str(file) for file in place.turn_files]
        self._child = _Child(told | {"fields": fields, "turnFiles": files}, clock)
        self._mapper = Mapper(catalog, Origin(place.host_id, "dcgm", attribution=False, known=place.known))
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._labels: list[Labels] = []
        self._number = 0
        self._misses = 0
        self._error = ""

    def read(self, tick_ms: int) -> Tick:
        """Take the latest value of every watched field.

        Raises:
            Retryable: The engine gives nothing, and no GPU is known of which that could be said.
        """
        self._number += 1
        answer = self._child.ask(self._number, self._timeout_seconds)
        self._learn()
        if answer is None or "error" in answer:
            return self._unanswered(answer, tick_ms)
        self._misses, self._error = 0, ""
        return Tick(self._contents(answer["values"], tick_ms), collector="dcgm", source="dcgm")

    def vitals(self) -> Facts:
        """Return how the process that talks to DCGM is."""
        return {"pid": self._child.pid, "restarts": max(self._child.starts - 1, 0), "trouble": self._error}

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def _learn(self) -> None:
        """Take the entities that the engine has now, whichever answer told them."""
        told, self._child.told = self._child.told, None
        if told is None:
            return
        self._labels = [tuple(sorted(facts.items())) for facts in told["entities"]]
        if told.get("leftOut"):
            words = "; ".join(f"{field} {why}" for field, why in told["leftOut"].items())
            logger.info("DCGM fields that are not watched: %s", words)

    def _unanswered(self, answer: dict[str, Any] | None, tick_ms: int) -> Tick:
        self._misses += 1
        self._counts.add("read_failed:dcgm")
        words = "DCGM does not answer" if answer is None else str(answer["error"])
        if words != self._error:
            logger.warning("dcgm: %s; is nv-hostengine running (systemctl status nvidia-dcgm)?", words)
            self._error = words
        gpus = sorted({gpu_id(dict(labels).get("UUID", "")) for labels in self._labels} - {""})
        if not gpus:
            raise Retryable(f"{words}; is nv-hostengine running (systemctl status nvidia-dcgm)?")
        gathered = Gathered()
        if self._misses >= MISSES_UNRESPONSIVE:
            metric = self._catalog.get("gpu_driver_unresponsive")
            gathered.cells = [Cell(metric, gpu, "", 1, Quality.OK) for gpu in gpus]
        contents = self._builder.build(gathered, self._clock.now_ms() - tick_ms)
        return Tick(contents, collector="dcgm", source="dcgm")

    def _contents(self, values: Sequence[Sequence[Any]], tick_ms: int) -> tuple[Content, ...]:
        mapped = self._mapper.map(self._exposition(values), tick_ms, tick_ms - STALE_PERIODS * self.interval_ms)
        gathered = mapped.of(self._host_id)
        self._add_states(gathered, values)
        self._counts.add_discarded(gathered.discarded)
        return self._builder.build(gathered, self._clock.now_ms() - tick_ms)

    def _exposition(self, values: Sequence[Sequence[Any]]) -> Exposition:
        """Return the values as the samples that an exporter would print of them."""
        exposition = Exposition(Syntax.TEXT)
        for line, (place, field, at_us, kind, value) in enumerate(values, 1):
            name = self._names.get(field)
            if name is None or place >= len(self._labels):
                continue
            labels = self._labels[place]
            if kind in ("i", "d"):
                exposition.samples.append(Sample(line, name, labels, value, at_us // 1000))
            elif kind != "s":
                quality = STATUS_QUALITIES.get(kind, Quality.ABSENT_SOURCE_BLANK)
                exposition.blanks.append(Blank(line, name, labels, quality))
        return exposition

    def _add_states(self, gathered: Gathered, values: Sequence[Sequence[Any]]) -> None:
        """Say of every GPU whether the engine can still reach it."""
        lost = {value[0] for value in values if value[3] == "lost"}
        reset = {value[0] for value in values if value[3] == "reset_required"}
        for place, labels in enumerate(self._labels):
            gpu = gpu_id(dict(labels).get("UUID", ""))
            if not gpu or "GPU_I_ID" in dict(labels):
                continue
            states = {"gpu_lost": int(place in lost), "gpu_driver_unresponsive": 0}
            gathered.cells += [
                Cell(self._catalog.get(name), gpu, "", state, Quality.OK) for name, state in states.items()
            ]
            if place in reset:
                kept = [c for c in gathered.cells if (c.metric.name, c.entity) != ("gpu_recovery_action", gpu)]
                gathered.cells = [*kept, Cell(self._catalog.get("gpu_recovery_action"), gpu, "", 1, Quality.OK)]


def field_names(catalog: Catalog) -> dict[int, str]:
    """Return a name of every DCGM field that a metric comes from, by its number."""
    names: dict[int, str] = {}
    for metric, source in catalog.of_system("dcgm"):
        if source.field_id is not None and metric.type.value != "info":
            names.setdefault(source.field_id, source.name)
    return names


class _Child:
    """The process, and the thread that reads its answers.

    Attributes:
        told: The newest answer that named the entities, until somebody takes it.
        starts: How often a process was started.
    """

    def __init__(self, settings: dict[str, Any], clock: Clock) -> None:
        self.told: dict[str, Any] | None = None
        self.starts = 0
        self._settings = settings
        self._clock = clock
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._waiting = False
        self._asked = 0.0
        self._start_at = 0.0
        self._wait_seconds = RESTART_SECONDS
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Return the process, if there is one."""
        process = self._process
        return None if process is None else process.pid

    def ask(self, number: int, timeout_seconds: float) -> dict[str, Any] | None:
        """Return the answer to a request, None if it did not come in time.

        A request that is not answered yet is not followed by another one.
        """
        end = self._clock.monotonic_seconds() + timeout_seconds
        if not self._is_up() or (self._waiting and self._take(end) is None):
            return None
        process = self._process
        if process is None or process.stdin is None:
            return None
        try:
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
        except OSError:
            return None
        self._waiting, self._asked = True, self._clock.monotonic_seconds()
        answer = self._take(end)
        return answer if answer is not None and answer.get("n") == number else None

    def close(self) -> None:
        """End the process by the end of its input, else by asking it to; a stuck one is left behind."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
        if self._thread is not None:
            self._thread.join(END_SECONDS)

    def _is_up(self) -> bool:
        now = self._clock.monotonic_seconds()
        process = self._process
        if process is not None and process.poll() is None:
            if self._waiting and now - self._asked > HANG_SECONDS:
                process.terminate()
            return True
        if now < self._start_at:
            return False
        self._start_at = now + self._wait_seconds
        self._wait_seconds = min(2 * self._wait_seconds, RESTART_MAXIMUM_SECONDS)
        self._start()
        return True

    def _start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "secondsight.agent.dcgm.child", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.starts += 1
        answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process, self._answers, self._waiting = process, answers, False
        self._thread = threading.Thread(target=_pump, args=(process, answers), name="dcgm", daemon=True)
        self._thread.start()
        if process.stdin is not None:
            process.stdin.write(json.dumps(self._settings) + "\n")

    def _take(self, end: float) -> dict[str, Any] | None:
        """Return the answer to the request that waits for one, None if it has not come by then."""
        try:
            answer = self._answers.get(timeout=max(end - self._clock.monotonic_seconds(), 0.0))
        except queue.Empty:
            return None
        self._waiting = False
        if "entities" in answer:
            self.told = answer
        if "error" not in answer:
            self._wait_seconds = RESTART_SECONDS
        return answer


def _pump(process: "subprocess.Popen[str]", answers: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Pass on answers until the process ends, and free its pipes."""
    if process.stdout is not None:
        with process.stdout as lines:
            for line in lines:
                answers.put(json.loads(line))
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
