"""Turn the rows that a running nvidia-smi prints into ticks, for hosts that have nothing better.

A GPU whose row stays away while others come, or of which the program says so, is lost until its row is back; the others
go on. A program that is silent or cannot reach the driver is said of every known GPU.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.counts import Counts
from secondsight.agent.health.vitals import Facts
from secondsight.agent.known_gpus import KnownGpus, pci_address
from secondsight.agent.smi.config import SmiSettings
from secondsight.agent.smi.mapping import SmiMapper
from secondsight.agent.smi.program import SmiProgram
from secondsight.agent.smi.rows import Fault, Row
from secondsight.agent.smi.texts import Trouble
from secondsight.agent.smi.troubles import ADVICE
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.errors import Retryable
from secondsight.mapping.cells import Cell, ContentBuilder, Gathered

logger = logging.getLogger(__name__)

MISSING_TICKS = 3
"""So many ticks in a row with rows of other GPUs, and without one of this GPU, make it lost."""

SILENT_INTERVALS = 5
SILENT_SECONDS = 15.0
UNKNOWN_LOGGED_MAXIMUM = 200


@dataclass(slots=True)
class _Gpu:
    """One GPU that has given rows."""

    address: str
    missing_ticks: int = 0
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class SmiPlace:
    """Which host is read.

    Attributes:
        root: Folder that holds sys.
    """

    host_id: str
    rack: str = ""
    root: Path = Path("/")


class SmiReader:
    """Reads one nvidia-smi; see `contracts.Reader`."""

    def __init__(
        self,
        settings: SmiSettings,
        place: SmiPlace,
        catalog: Catalog,
        clock: Clock,
        counts: Counts,
        known: KnownGpus | None = None,
    ) -> None:
        self.name = "smi"
        self.interval_ms = settings.interval_ms
        self._place = place
        self._clock = clock
        self._counts = counts
        self._mapper = SmiMapper(catalog, place.host_id, known or KnownGpus(place.host_id))
        self._program = SmiProgram(settings, self._mapper.columns, clock)
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._gpus: dict[str, _Gpu] = {}
        self._standing: list[Fault] = []
        self._told: frozenset[tuple[Trouble, str]] = frozenset()
        self._unknown: set[str] = set()

    @property
    def starts(self) -> int:
        """Return how often nvidia-smi was started to print rows."""
        return self._program.starts

    def vitals(self) -> Facts:
        """Return how nvidia-smi is."""
        return {
            "restarts": max(self.starts - 1, 0),
            "trouble": ", ".join(sorted({trouble.value for trouble, _ in self._told})),
        }

    def read(self, tick_ms: int) -> Tick:
        """Return the newest row of every GPU that has come since the last tick, and what is wrong with others.

        Raises:
            Retryable: There is no row and no GPU known of which that could be said; the message says what to do.
        """
        self._program.start()
        document = self._program.take()
        rows = self._newest(document.rows)
        self._note_refused(len(document.refusals))
        mapped = self._mapper.map(rows.values(), tick_ms)
        self._counts.add_discarded(mapped.gathered.discarded)
        self._note_unknown(mapped.unknown)
        self._stand(document.faults, rows)
        self._look_for_missing(rows)
        self._add_troubles(mapped.gathered, rows)
        self._log_troubles(mapped.troubles.keys())
        if not rows and not mapped.gathered.cells:
            self._say_nothing_came()
        contents = self._builder.build(mapped.gathered, self._clock.now_ms() - tick_ms)
        return Tick(contents, collector=self.name, source=self.name)

    def close(self) -> None:
        """End the program."""
        self._program.close()

    def _newest(self, rows: Iterable[Row]) -> dict[str, Row]:
        """Return the newest row of each GPU by its entity; rows of no GPU are left to the mapper to count."""
        newest = {self._mapper.entity_of(row) or f"#{row.line}": row for row in rows}
        for entity, row in newest.items():
            self._gpus[entity] = _Gpu(pci_address(row.text("pci.bus_id")))
        return newest

    def _stand(self, faults: Iterable[Fault], rows: dict[str, Row]) -> None:
        """Keep what was said of all rows until rows come again."""
        if rows:
            self._standing = []
        for fault in faults:
            entity = self._entity_of(fault)
            if entity:
                self._gpus.setdefault(entity, _Gpu(pci_address(fault.address))).trouble = fault.trouble
            elif not rows:
                self._standing = [fault]
        silent = self._program.silent_seconds()
        if silent > max(SILENT_SECONDS, SILENT_INTERVALS * self.interval_ms / 1000):
            text = f"nvidia-smi has printed nothing for {silent:.0f} s: the driver hangs"
            self._standing = [Fault(0, Trouble.UNKNOWN_ERROR, "", text)]
            self._program.ask_to_end()

    def _entity_of(self, fault: Fault) -> str:
        told = self._mapper.told([fault], ())
        return next((entity for _, entity in told.troubles if entity), "")

    def _look_for_missing(self, rows: dict[str, Row]) -> None:
        if not rows:
            return
        for entity in [entity for entity in self._gpus if entity not in rows]:
            gpu = self._gpus[entity]
            gpu.missing_ticks += 1
            if gpu.missing_ticks >= MISSING_TICKS and gpu.trouble is None:
                if self._is_on_the_bus(gpu):
                    gpu.trouble = Trouble.LOST
                else:
                    del self._gpus[entity]

    def _is_on_the_bus(self, gpu: _Gpu) -> bool:
        """Tell whether the kernel still lists the device; one that is gone was taken out, and is not lost."""
        folder = self._place.root / "sys/bus/pci/devices"
        return not gpu.address or not folder.is_dir() or (folder / gpu.address).exists()

    def _add_troubles(self, gathered: Gathered, rows: dict[str, Row]) -> None:
        cells: dict[tuple[str, str, str], Cell] = {}
        for entity, gpu in self._gpus.items():
            if entity in rows:
                continue
            for trouble in [gpu.trouble, *(fault.trouble for fault in self._standing)]:
                if trouble is not None:
                    cell = self._mapper.trouble_cell(trouble, entity)
                    cells[cell.metric.name, entity, cell.part] = cell
        gathered.cells += cells.values()

    def _log_troubles(self, of_rows: Iterable[tuple[Trouble, str]]) -> None:
        """Log every trouble once while it lasts, with what to do."""
        lost = {(gpu.trouble, entity) for entity, gpu in self._gpus.items() if gpu.trouble is not None}
        told = frozenset({*of_rows, *lost})
        for trouble, entity in sorted(told - self._told):
            logger.warning("%s: %s (%s)", entity, trouble.value.replace("_", " "), ADVICE[trouble])
            self._counts.add(f"smi_trouble:{trouble}")
        self._told = told

    def _say_nothing_came(self) -> None:
        if self._standing:
            fault = self._standing[0]
            raise Retryable(f"{fault.text} ({ADVICE[fault.trouble]})")
        if self._gpus:
            self._counts.add("ticks_missed")

    def _note_refused(self, lines: int) -> None:
        if lines:
            self._counts.add_discarded({"parse": lines})

    def _note_unknown(self, unknown: Iterable[str]) -> None:
        """Log a column that the catalogue does not have once."""
        for column in set(unknown) - self._unknown:
            if len(self._unknown) < UNKNOWN_LOGGED_MAXIMUM:
                self._unknown.add(column)
                logger.debug("nvidia-smi prints %s, which the catalogue does not have", column)
