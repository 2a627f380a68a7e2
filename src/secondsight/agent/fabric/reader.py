"""Turn the InfiniBand and RoCE ports in /sys/class/infiniband into fabric_port rows, and changes of links into events.

A device that cannot be read costs its own ports alone, and rests for a while. Ports come and go.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from secondsight.agent.counts import Counts
from secondsight.agent.fabric.config import FabricConfig
from secondsight.agent.fabric.files import Device
from secondsight.agent.fabric.links import GONE, Link, LinkWatch
from secondsight.agent.fabric.port import Port, PortPlace, port_facts
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Tick
from secondsight.mapping.cells import Attributes, ContentBuilder, Gathered, count_discarded
from secondsight.mapping.identity import is_usable
from secondsight.model import EntityKind
from secondsight.wire.content import Event

logger = logging.getLogger(__name__)

LOOK_FOR_PORTS_TICKS = 60
"""Ports are looked for once in so many ticks, and when one is gone."""

WATCHES_MAXIMUM = 2048


@dataclass(frozen=True, slots=True)
class FabricPlace:
    """Which host's ports are read, and where its files are.

    Attributes:
        root: Folder that holds sys.
    """

    host_id: str
    rack: str = ""
    root: Path = Path("/")
    interval_ms: int = 1000


class FabricReader:
    """Reads the ports of one host; see `contracts.Reader`. Counts `fabric_rest`: devices left alone for a while."""

    def __init__(
        self, config: FabricConfig, place: FabricPlace, catalog: Catalog, clock: Clock, counts: Counts
    ) -> None:
        self.name = "fabric"
        self.interval_ms = place.interval_ms
        self._config = config
        self._place = place
        self._folder = str(place.root / "sys/class/infiniband")
        self._catalog = catalog
        self._clock = clock
        self._counts = counts
        self._builder = ContentBuilder(place.host_id, place.rack)
        self._ports: dict[str, Port] = {}
        self._facts: dict[str, Attributes] = {}
        self._devices: dict[str, Device] = {}
        self._watches: dict[str, LinkWatch] = {}
        self._ticks = 0

    def read(self, tick_ms: int) -> Tick:
        """Take one tick of every port."""
        if self._ticks % LOOK_FOR_PORTS_TICKS == 0:
            self._look_for_ports()
        self._ticks += 1
        gathered, now = Gathered(), self._clock.monotonic_seconds()
        links = dict.fromkeys(self._watches, GONE)
        for port in self._ports.values():
            cells, links[port.entity] = port.read(now)
            gathered.cells += cells
            gathered.attributes[port.entity, ""] = self._facts[port.entity]
        gathered.events = [(EntityKind.FABRIC_PORT, event) for event in self._changes(links)]
        self._drop_gone()
        count_discarded(gathered)
        self._counts.add_discarded(gathered.discarded)
        return Tick(self._builder.build(gathered, self._clock.now_ms() - tick_ms))

    def close(self) -> None:
        """Close the files."""
        for port in self._ports.values():
            port.close()

    def _changes(self, links: dict[str, Link]) -> Iterator[Event]:
        now_ms = self._clock.now_ms()
        for entity, link in links.items():
            watch = self._watches.get(entity)
            if watch is None and len(self._watches) < WATCHES_MAXIMUM:
                watch = self._watches[entity] = LinkWatch()
            if watch is not None:
                yield from watch.see(link, entity, now_ms)

    def _look_for_ports(self) -> None:
        """Find new ports; at most so many are taken, those of the first names."""
        wanted: dict[str, tuple[str, str]] = {}
        for device in _names(self._folder):
            for number in _names(f"{self._folder}/{device}/ports"):
                wanted[f"{self._place.host_id}/{device}/{number}"] = (device, number)
        usable = [entity for entity in wanted if is_usable(entity)][: self._config.ports_maximum]
        if len(usable) < len(wanted):
            self._counts.add("discarded:entities_limit", len(wanted) - len(usable))
        for entity in self._ports.keys() - set(usable):
            self._ports.pop(entity).close()
        for entity in usable:
            if entity not in self._ports:
                self._add(entity, *wanted[entity])

    def _add(self, entity: str, device: str, number: str) -> None:
        device_folder = f"{self._folder}/{device}"
        folder = f"{device_folder}/ports/{number}"
        shared = self._devices.setdefault(device, Device(device, self._rest_begins))
        self._ports[entity] = Port(PortPlace(folder, entity), shared, self._catalog)
        self._facts[entity] = port_facts(folder, device_folder, number)

    def _drop_gone(self) -> None:
        """Forget ports of devices that were taken away, and look for them anew at the next tick."""
        gone = [entity for entity, port in self._ports.items() if port.device.is_gone]
        for entity in gone:
            port = self._ports.pop(entity)
            port.close()
            self._devices.pop(port.device.name, None)
            self._ticks = 0

    def _rest_begins(self, device: str, error: OSError) -> None:
        self._counts.add("fabric_rest")
        logger.warning(
            "%s: %s cannot be read (%s) and is left alone for 10 min; a restricted virtual function should not be "
            "given to the host",
            self._place.host_id,
            device,
            error.strerror,
        )


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 # names alone are wanted
    except OSError:
        return []
