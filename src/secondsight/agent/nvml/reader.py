"""Read the GPUs of this host through the driver child: rows of GPUs each tick, events, facts, and who is present.

A GPU is its UUID. One that the driver no longer lists keeps its row, which says that it is lost, as long as its PCI
device is there, also over a restart of the agent; of one that does not answer the row says that the driver is
unresponsive. A place on the PCI bus whose GPU nobody knows is an event of the host. What cannot be known is not
claimed.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from secondsight.agent.counts import Counts
from secondsight.agent.health.vitals import Facts as Vital
from secondsight.agent.known_gpus import pci_address
from secondsight.agent.nvml import channel
from secondsight.agent.nvml.absent import AbsentGpus
from secondsight.agent.nvml.decode import Decoded
from secondsight.agent.nvml.devices import Present, described
from secondsight.agent.nvml.driver import Record, Values
from secondsight.agent.nvml.events import DriverEvents
from secondsight.agent.nvml.missing import MissingGpus
from secondsight.agent.nvml.roster import Roster
from secondsight.agent.nvml.rows import LOST, WHOLE_GPU, Columns, GpuRows, Place
from secondsight.agent.nvml.source import GpuSource, RareReading
from secondsight.agent.nvml.vitals import driver_facts
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Source
from secondsight.catalog.scale import conversion
from secondsight.contracts import Tick
from secondsight.mapping.cells import DISCARD_REASONS
from secondsight.mapping.changes import Facts
from secondsight.mapping.columns import ColumnLayout
from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Content, Entity, EntityTable, Event

logger = logging.getLogger(__name__)

SILENT_TICKS = 2
"""So many ticks without a word make a driver unresponsive; one may be bad luck on a busy machine."""

TIMEOUT_TICKS = 3
LOOK_TICKS = 10
"""Whether a missing GPU was taken out is looked up once in so many ticks."""

MISUSED = frozenset((2, 7, 25))
"""Codes that say that a call is made wrongly."""

LINK_STATE = "nvmlDeviceGetNvLinkState("
LINK_ON = 1


class NvmlReader:
    """Reads GPUs through NVML; see `contracts.Reader`. Counts `nvml_code:NAME/CODE` for codes that are errors."""

    def __init__(self, source: GpuSource, catalog: Catalog, counts: Counts) -> None:
        self.name = "nvml"
        self.interval_ms = source.host.interval_ms
        self._source = source
        self._counts = counts
        host = source.host
        self._roster = Roster(host.host_id, host.rack, host.root)
        self._missing = MissingGpus(host.host_id, lambda address: source.known.uuid_of(address=address), host.kept)
        self._absent = AbsentGpus(host.root, host.dev)
        self._rows = GpuRows(source.plan)
        self._layout = ColumnLayout(EntityKind.GPU, source.plan.metrics)
        self._node = ColumnLayout(EntityKind.NODE, [catalog.get("node_gpu_count")])
        self._node_entities = EntityTable(EntityKind.NODE, host.host_id, host.rack, (Entity(host.host_id),))
        self._ratio = conversion(catalog.get("gpu_memory_used_ratio"), Source("agent", "gpu_memory_used_ratio"))
        self._facts = Facts()
        self._events = DriverEvents(counts)
        self._seen = (0, 0)
        self._silent_ticks = 0
        self._timeouts: Counter[int] = Counter()
        self._ticks = 0
        self._troubled: frozenset[str] = frozenset()
        self._misused: set[str] = set()
        self._rearrange(lambda: self._roster.remember(self._missing.restored()))

    def read(self, tick_ms: int) -> Tick:
        """Take one tick of all GPUs, within the source's deadline; nothing while no GPU was ever seen."""
        if not self._source.is_usable():
            return Tick(())
        values = self._source.driver.tick(*self._source.waits_seconds)
        self._take_devices()
        rare = self._source.driver.take_rare()
        self._rows.learn_rare(rare)
        is_ready = values is not None and values.code == 0
        self._silent_ticks = 0 if is_ready else self._silent_ticks + 1
        happened = self._look_for_absent(tick_ms) if is_ready and self._ticks % LOOK_TICKS == 0 else []
        records = values.records if values is not None and is_ready else ()
        columns = self._rows.read(records, self.interval_ms)
        if rare:
            self._publish_rare()
        self._count(columns)
        self._derive(columns, records)
        self._ticks += 1
        return Tick(tuple(self._contents(values, columns, tick_ms, happened)), source="nvml")

    def vitals(self) -> Vital:
        """Return how the driver is."""
        return driver_facts(self._source)

    def close(self) -> None:
        """Tell the driver child to end."""
        self._source.driver.close()

    def _take_devices(self) -> None:
        """Take the list of GPUs where it is new."""
        driver = self._source.driver
        if driver.generation != self._seen[0]:
            self._rows.forget_rare()
            self._source.rare = {}
            self._seen = (driver.generation, self._seen[1])
            self._rearrange(self._roster.unlist)
        if driver.devices is not None and driver.device_changes != self._seen[1]:
            self._seen = (self._seen[0], driver.device_changes)
            gpus = described(driver.devices)
            self._rearrange(lambda: self._list_now(gpus))
            for gpu in gpus:
                self._facts.learn("gpu_info", gpu.uuid, dict(gpu.facts), named=True)
                self._source.known.learn(gpu.uuid, str(gpu.index), gpu.pci_bus_id)
            self._source.by_number = self._roster.by_number
            self._source.present.put([gpu.gpu for gpu in gpus])
        elif self._ticks % LOOK_TICKS == 0 and self._roster.missing:
            self._rearrange(self._roster.drop_taken_out)
            self._missing.keep(self._roster.gpus.values())

    def _list_now(self, gpus: Sequence[Present]) -> None:
        self._roster.list_now(gpus)
        self._roster.drop_taken_out()
        self._missing.keep(self._roster.gpus.values())

    def _look_for_absent(self, tick_ms: int) -> list[Event]:
        """Give GPUs that the bus has and the driver does not list their rows, or tell their places."""
        listed = {pci_address(gpu.pci_bus_id) for gpu in self._source.by_number.values()}
        found, events = self._missing.take(self._absent.look(listed), self._roster.gpus, tick_ms)
        if found:
            self._rearrange(lambda: self._roster.remember(found))
        if found or events:
            self._missing.keep(self._roster.gpus.values())
        for event in events:
            words = "is listed again or gone" if event.end_ms else "is on the PCI bus and not listed by the driver"
            logger.warning("the GPU at %s of %s %s", event.attributes["pci_bus_id"], event.entity, words)
        return events

    def _rearrange(self, change: Callable[[], object]) -> None:
        before = [row.key for row in self._roster.rows]
        change()
        self._rows.arrange([(row.key, row.place) for row in self._roster.rows], before)
        self._timeouts.clear()

    def _publish_rare(self) -> None:
        """Let the reader of parts have what was read rarely."""
        now = self._source.clock.monotonic_seconds()
        rare = {uuid: one for uuid, one in self._source.rare.items() if uuid in self._listed()}
        for number, decoded, names in self._rows.rare():
            gpu = self._source.by_number.get(number)
            if gpu is not None and (gpu.uuid not in rare or rare[gpu.uuid].decoded is not decoded):
                held = self._rows.held((number, WHOLE_GPU))
                rare[gpu.uuid] = RareReading(decoded, names, now, held, _links_active(decoded, names))
        self._source.rare = rare

    def _listed(self) -> set[str]:
        return {gpu.uuid for gpu in self._source.by_number.values()}

    def _count(self, columns: Columns) -> None:
        for (name, code), times in columns.codes.items():
            self._counts.add(f"nvml_code:{name}/{code}", times)
            if code in MISUSED and name not in self._misused:
                self._misused.add(name)
                logger.error(
                    "the driver says that %s is asked wrongly (code %d), it is left out for a while", name, code
                )
        refused = [(quality, count) for quality, count in columns.discarded.items() if quality in DISCARD_REASONS]
        self._counts.add_discarded({DISCARD_REASONS[quality]: count for quality, count in refused})

    def _derive(self, columns: Columns, records: Sequence[Record]) -> None:
        """Set the columns that are no answers of the driver."""
        by_place = {_place(record): record for record in records if record.what in (channel.MAIN, channel.BUSY)}
        troubled: set[str] = set()
        healthy: list[int] = []
        for row, one in enumerate(self._roster.rows):
            if one.key[1]:
                continue
            record = by_place.get(one.place) if one.place is not None else None
            lost, unresponsive = self._trouble(row, one.place, record, columns)
            self._set(columns, row, "gpu_lost", lost)
            self._set(columns, row, "gpu_driver_unresponsive", unresponsive)
            is_unknown = lost is None and unresponsive is None
            if lost or unresponsive or (is_unknown and one.key[0] in self._troubled):
                troubled.add(one.key[0])
            elif record is not None and record.what == channel.MAIN and one.place is not None:
                rare = self._source.rare.get(one.key[0])
                self._set(columns, row, "gpu_nvlink_links_active", None if rare is None else rare.links_active)
                healthy.append(row)
        self._derive_used_ratio(columns, healthy)
        self._tell(frozenset(troubled))

    def _trouble(
        self, row: int, place: Place | None, record: Record | None, columns: Columns
    ) -> tuple[int | None, int | None]:
        """Return whether a GPU is lost and whether the driver does not answer for it, None where that is not known."""
        if record is None:
            silent = 1 if self._silent_ticks >= SILENT_TICKS else None
            return (None, silent) if self._silent_ticks else (1 if place is None else None, None)
        if record.what == channel.BUSY:
            is_long = record.busy_ms >= self.interval_ms * (SILENT_TICKS - 1)
            return None, 1 if is_long else None
        self._timeouts[row] = self._timeouts[row] + 1 if columns.timed_out[row] else 0
        return int(record.code in LOST), int(self._timeouts[row] >= TIMEOUT_TICKS)

    def _derive_used_ratio(self, columns: Columns, rows: Sequence[int]) -> None:
        """Set used / (total - reserved) of some rows, where all of it is known."""
        places = [self._rows.columns[f"gpu_memory_{name}_bytes"] for name in ("used", "total", "reserved")]
        known = (columns.quality[:, places] == Quality.OK).all(axis=1)
        for row in rows:
            used, total, reserved = columns.patterns[row, places].tolist()
            if known[row] and total > reserved:
                value, _ = self._ratio.one(used / (total - reserved))
                self._set(columns, row, "gpu_memory_used_ratio", None if value is None else int(value))

    def _set(self, columns: Columns, row: int, metric: str, value: int | None) -> None:
        column = self._rows.columns[metric]
        columns.patterns[row, column] = value or 0
        columns.quality[row, column] = Quality.NONE if value is None else Quality.OK

    def _tell(self, troubled: frozenset[str]) -> None:
        """Log which GPUs got into trouble, and which are well again."""
        for uuid in sorted(troubled - self._troubled):
            logger.warning("GPU %s on %s is lost or not answered for by the driver", uuid, self._source.host.host_id)
        for uuid in sorted(self._troubled - troubled):
            logger.info("GPU %s on %s answers again", uuid, self._source.host.host_id)
        self._troubled = troubled

    def _contents(
        self, values: Values | None, columns: Columns, tick_ms: int, of_host: Sequence[Event]
    ) -> list[Content]:
        now_ms = self._source.clock.now_ms()
        by_uuid = {gpu.uuid: gpu for gpu in self._source.by_number.values()}
        events = self._events.take(self._source.driver.take_events(), by_uuid, now_ms)
        infos = self._facts.take(tick_ms)
        contents: list[Content] = []
        if self._roster.rows or events:
            happened = (events, infos)
            entities, delta_ms = self._roster.entities, now_ms - tick_ms
            contents.append(self._layout.content(entities, columns.patterns, columns.quality, delta_ms, happened))
        if values is not None and values.code == 0:
            count = np.array([[values.listed]], np.int64)
            good = np.array([[Quality.OK]], np.uint8)
            contents.append(self._node.content(self._node_entities, count, good, now_ms - tick_ms, (of_host, ())))
        return contents


def _place(record: Record) -> Place:
    return record.number, WHOLE_GPU


def _links_active(decoded: Decoded, names: Sequence[str]) -> int | None:
    """Return how many NVLinks are on, None for a GPU without any."""
    places = [place for place, name in enumerate(names) if name.startswith(LINK_STATE)]
    known = [place for place in places if decoded.codes[0, place] == 0]
    return sum(int(decoded.whole[0, place]) == LINK_ON for place in known) if known else None
