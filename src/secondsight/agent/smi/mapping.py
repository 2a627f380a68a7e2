"""Turn rows of nvidia-smi into cells, through the columns that the catalogue names.

A GPU that is lost or needs a reset is said to be so, once; the figures of its row are then no readings (a 0 MiB there
is no idle GPU). Columns that the catalogue does not have are counted by name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.smi.columns import FLAG_PREFIX
from secondsight.agent.smi.rows import Fault, Row, Subject
from secondsight.agent.smi.texts import Reading, Text, Trouble, is_blank, plain, read_text
from secondsight.agent.smi.tree import mask_of
from secondsight.catalog.index import Binding, Catalog
from secondsight.catalog.metric import Metric, MetricType, RollupSet, Source
from secondsight.catalog.scale import Conversion, conversion
from secondsight.mapping.cells import Attributes, Cell, Gathered, count_discarded, part_text
from secondsight.mapping.changes import Facts
from secondsight.mapping.identity import ATTRIBUTE_CHARACTERS, NOT_ON_SLICES, is_usable
from secondsight.model import EntityKind, Quality

UNITS: dict[str, tuple[str, float]] = {
    "%": ("1", 0.01),
    "b": ("By", 1),
    "kib": ("By", 2**10),
    "mib": ("By", 2**20),
    "mb": ("By", 2**20),
    "gib": ("By", 2**30),
    "kb/s": ("By/s", 2**10),
    "kib/s": ("By/s", 2**10),
    "mb/s": ("By/s", 2**20),
    "mib/s": ("By/s", 2**20),
    "w": ("W", 1),
    "mw": ("W", 1e-3),
    "hz": ("Hz", 1),
    "khz": ("Hz", 1e3),
    "mhz": ("Hz", 1e6),
    "ghz": ("Hz", 1e9),
    "c": ("Cel", 1),
    "s": ("s", 1),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "µs": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "j": ("J", 1),
    "mj": ("J", 1e-3),
    "uj": ("J", 1e-6),
    "x": ("lanes", 1),
    "bank": ("1", 1),
    "switch": ("bool", 1),
}
"""Units as printed, in lower case: unit of the catalogue and the factor to it. The program prints MB for MiB."""

WORDS: dict[str, dict[str, int]] = {
    "gpu_recovery_action": {
        "none": 0,
        "reset": 1,
        "gpu reset": 1,
        "reboot": 2,
        "node reboot": 2,
        "drain p2p": 3,
        "drain and reset": 4,
        "recover imex domain": 5,
    },
    "fabric.state": {"not started": 1, "in progress": 2, "completed": 3},
    "fabric.health.summary": {"healthy": 1, "unhealthy": 2, "limited capacity": 3},
}
"""States that are printed as words."""

FLAGS_NEEDED = frozenset({"sw_power_cap", "hw_slowdown"})
"""A mask is made of single flags only where these are among them: a choice of few flags is no mask."""

FACT_COLUMNS = frozenset({"uuid", "index", "pci.bus_id", "name"})
PLACES = frozenset({"id", "gpu_instance_id", "compute_instance_id"})
"""Columns that say where a reading belongs, and are none."""

YES, NO, RESET = 1, 0, 1


@dataclass(slots=True)
class SmiMapped:
    """What rows came to.

    Attributes:
        unknown: Column -> cells of it that the catalogue has no metric for.
        troubles: (trouble, entity) as often as a row or a line told of it.
    """

    gathered: Gathered = field(default_factory=Gathered)
    unknown: Counter[str] = field(default_factory=Counter)
    troubles: Counter[tuple[Trouble, str]] = field(default_factory=Counter)


class SmiMapper:
    """Maps the rows of one host; not shared between threads."""

    def __init__(self, catalog: Catalog, host_id: str, known: KnownGpus) -> None:
        self._catalog = catalog
        self._host_id = host_id
        self._known = known
        self._facts = Facts()
        self._conversion = lru_cache(maxsize=1024)(_conversion)
        self._bindings: dict[str, list[Binding]] = {}
        for metric, source in catalog.of_system("smi"):
            self._bindings.setdefault(source.name, []).append((metric, source))

    @property
    def columns(self) -> frozenset[str]:
        """Return the columns that the catalogue has a metric for."""
        return frozenset(self._bindings)

    def entity_of(self, row: Row) -> str:
        """Return the GPU that a row is about, "" if it does not say."""
        named = {name: "" if is_blank(row.text(name)) else row.text(name).strip() for name in FACT_COLUMNS}
        return self._known.identify(named["uuid"], named["index"], named["pci.bus_id"])

    def map(self, rows: Iterable[Row], time_ms: int) -> SmiMapped:
        """Return what rows of one instant say; of two rows of one GPU the later one counts."""
        mapped = SmiMapped()
        cells: dict[tuple[str, str, str], Cell] = {}
        for row in rows:
            entity = self.entity_of(row)
            if not is_usable(entity):
                mapped.gathered.discarded["no_identity"] += 1
            elif row.subject is Subject.PROCESS:
                self._take_process(row, entity, cells, mapped)
            elif row.subject is not Subject.LISTED:
                for cell in self._row_cells(row, entity, mapped):
                    cells[cell.metric.name, cell.entity, cell.part] = cell
        mapped.gathered.cells += cells.values()
        mapped.gathered.infos += [(EntityKind.GPU, info) for info in self._facts.take(time_ms)]
        count_discarded(mapped.gathered)
        return mapped

    def told(self, faults: Iterable[Fault], gpus: Iterable[str]) -> SmiMapped:
        """Return what lines that stand in place of rows say; those of the whole host are said of every known GPU."""
        mapped = SmiMapped()
        cells: dict[tuple[str, str, str], Cell] = {}
        everyone = tuple(gpus)
        for fault in faults:
            index = fault.address if fault.address.isdigit() else ""
            named = self._known.identify("", index, fault.address) if fault.address else ""
            for entity in (named,) if named else everyone:
                mapped.troubles[fault.trouble, entity] += 1
                cell = self.trouble_cell(fault.trouble, entity)
                cells[cell.metric.name, cell.entity, cell.part] = cell
            if not named and not everyone:
                mapped.troubles[fault.trouble, ""] += 1
        mapped.gathered.cells += cells.values()
        return mapped

    def trouble_cell(self, trouble: Trouble, entity: str) -> Cell:
        """Return the state that says what is wrong with a GPU."""
        match trouble:
            case Trouble.LOST:
                return Cell(self._catalog.get("gpu_lost"), entity, "", YES, Quality.OK)
            case Trouble.RESET_REQUIRED:
                return Cell(self._catalog.get("gpu_recovery_action"), entity, "", RESET, Quality.OK)
            case _:
                return Cell(self._catalog.get("gpu_driver_unresponsive"), entity, "", YES, Quality.OK)

    def _row_cells(self, row: Row, entity: str, mapped: SmiMapped) -> list[Cell]:
        texts = _with_mask(row.cells)
        slice_part = part_text([("gi", row.text("gpu_instance_id"))]) if row.subject is Subject.SLICE else ""
        best: dict[tuple[str, str], tuple[int, Cell]] = {}
        troubles: Counter[Trouble] = Counter()
        for column, text in texts.items():
            reading = _read(column, text)
            for metric, source in self._bound(column, mapped):
                if metric.type is MetricType.INFO:
                    self._learn(metric, source, entity, text)
                elif not slice_part or "gi" in metric.labels:
                    troubles.update([reading.trouble] if reading.trouble else [])
                    part = slice_part or part_text(source.part)
                    _keep_better(best, source.rank, self._cell(metric, source, (entity, part), reading))
        cells = [cell for _, cell in best.values()]
        if slice_part:
            return cells
        mapped.gathered.attributes[entity, ""] = self._attributes(row)
        return self._judged(cells, entity, troubles, mapped)

    def _bound(self, column: str, mapped: SmiMapped) -> list[Binding]:
        bindings = self._bindings.get(column)
        if bindings is None and column not in PLACES and not column.startswith(FLAG_PREFIX):
            mapped.unknown[column] += 1
        return bindings or []

    def _cell(self, metric: Metric, source: Source, whom: tuple[str, str], reading: Reading) -> Cell:
        if reading.number is None:
            return Cell(metric, *whom, None, reading.quality)
        scale = _scale_of(metric, source, reading)
        if scale is None:
            return Cell(metric, *whom, None, Quality.BAD_PARSE)
        return Cell(metric, *whom, *self._conversion(metric, source, scale).one(reading.number))

    def _judged(self, cells: list[Cell], entity: str, troubles: Counter[Trouble], mapped: SmiMapped) -> list[Cell]:
        """Return the cells of a row in the light of what the row says of its GPU."""
        if _flag(cells, "gpu_mig_mode"):
            cells = [_unsupported(cell) if cell.metric.name in NOT_ON_SLICES else cell for cell in cells]
        trouble = next((one for one in (Trouble.LOST, Trouble.RESET_REQUIRED) if troubles[one]), None)
        if trouble is None and troubles[Trouble.UNKNOWN_ERROR] > 1 and not any(_is_live(cell) for cell in cells):
            trouble = Trouble.UNKNOWN_ERROR
        if troubles[Trouble.NO_PERMISSION]:
            mapped.troubles[Trouble.NO_PERMISSION, entity] += 1
        said = {} if trouble is None else {self.trouble_cell(trouble, entity).metric.name: trouble}
        if trouble is not None:
            mapped.troubles[trouble, entity] += 1
            cells = [_untrusted(cell) for cell in cells if cell.metric.name not in said]
            cells.append(self.trouble_cell(trouble, entity))
        if trouble in (None, Trouble.RESET_REQUIRED) and any(cell.value is not None for cell in cells):
            answers = (self._catalog.get(name) for name in ("gpu_lost", "gpu_driver_unresponsive"))
            cells += [Cell(metric, entity, "", NO, Quality.OK) for metric in answers]
        return cells

    def _take_process(self, row: Row, gpu: str, cells: dict[tuple[str, str, str], Cell], mapped: SmiMapped) -> None:
        """Add what a process holds of a GPU or of a slice."""
        pid = row.text("pid").strip()
        entity = f"{self._host_id}/{pid}"
        if is_blank(pid):
            return
        if not pid.isdigit() or not is_usable(entity):
            mapped.gathered.discarded["no_identity"] += 1
            return
        name, instance = row.text("process_name").strip(), row.text("gpu_instance_id").strip()
        part = part_text([("gpu", gpu), ("gi", instance if instance.isdigit() else "")])
        facts = (("pid", pid), ("process", "" if is_blank(name) else name[:ATTRIBUTE_CHARACTERS]))
        mapped.gathered.attributes[entity, part] = tuple(pair for pair in facts if pair[1] and pair[1].isprintable())
        for column, text in row.cells.items():
            for metric, source in self._bindings.get(column, ()):
                if metric.kind is EntityKind.PROCESS_JOB:
                    cells[metric.name, entity, part] = self._cell(metric, source, (entity, part), _read(column, text))

    def _learn(self, metric: Metric, source: Source, entity: str, text: Text) -> None:
        attribute = dict(source.part).get("attribute")
        if attribute and not is_blank(text.text):
            value = entity if attribute == "uuid" else text.text.strip()
            self._facts.learn(metric.name, entity, {attribute: value}, named=True)

    def _attributes(self, row: Row) -> Attributes:
        named = (("gpu_model", "name"), ("index", "index"), ("pci_bus_id", "pci.bus_id"))
        found = ((name, row.text(column).strip()[:ATTRIBUTE_CHARACTERS]) for name, column in named)
        return tuple((name, value) for name, value in found if not is_blank(value) and value.isprintable())


def _conversion(metric: Metric, source: Source, scale: float) -> Conversion:
    return conversion(metric, replace(source, scale=scale))


def _read(column: str, text: Text) -> Reading:
    word = plain(text.text)
    known = WORDS.get(column, {})
    return Reading(known[word], "", word) if word in known else read_text(text)


def _scale_of(metric: Metric, source: Source, reading: Reading) -> float | None:
    """Return the factor from a printed number to the metric's unit; None where the unit is not one of the metric."""
    if reading.unit == "switch":
        return 1.0 if metric.unit == "bool" or (metric.bitmask and reading.number == 0) else None
    if not reading.unit:
        return source.scale
    unit, scale = UNITS.get(reading.unit, ("", 0.0))
    return scale if unit == metric.unit else None


def _with_mask(cells: Mapping[str, Text]) -> Mapping[str, Text]:
    """Return cells with the mask of clock event reasons made of single flags, where it is not there itself."""
    whole = f"{FLAG_PREFIX}active"
    if whole in cells:
        return cells
    flags = {name.removeprefix(FLAG_PREFIX): text.text for name, text in cells.items() if name.startswith(FLAG_PREFIX)}
    return {**cells, whole: Text(mask_of(flags))} if flags.keys() >= FLAGS_NEEDED else cells


def _keep_better(best: dict[tuple[str, str], tuple[int, Cell]], rank: int, cell: Cell) -> None:
    """Keep the cell of the better rank; one with a value is better than one without."""
    key = (cell.metric.name, cell.part)
    old = best.get(key)
    if old is None or (cell.value is not None, -rank) > (old[1].value is not None, -old[0]):
        best[key] = (rank, cell)


def _flag(cells: Iterable[Cell], metric: str) -> bool:
    return any(cell.metric.name == metric and cell.value == 1 for cell in cells)


def _is_live(cell: Cell) -> bool:
    """Tell whether a cell is a reading of this instant: not a fact of the board such as its memory."""
    return cell.value is not None and cell.metric.rollup is not RollupSet.CONSTANT


def _untrusted(cell: Cell) -> Cell:
    return cell._replace(value=None, quality=Quality.ABSENT_SOURCE_BLANK) if _is_live(cell) else cell


def _unsupported(cell: Cell) -> Cell:
    return cell._replace(value=None, quality=Quality.ABSENT_NOT_SUPPORTED)
