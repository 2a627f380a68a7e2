"""Turn one port's folder of sysfs into cells and what its link is."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from secondsight.agent.fabric.files import Device, SysfsFile
from secondsight.agent.fabric.layout import (
    HARDWARE_COUNTERS,
    PORT_COUNTERS,
    CounterFile,
    file_names,
    rate_of,
    state_number,
)
from secondsight.agent.fabric.links import Link
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Metric, Source
from secondsight.catalog.scale import Conversion, conversion
from secondsight.mapping.cells import Attributes, Cell, part_text, plain_text
from secondsight.mapping.identity import ATTRIBUTE_CHARACTERS
from secondsight.model import Quality

GIGABIT = 1_000_000_000


@dataclass(slots=True)
class _Value:
    """One file whose text becomes a cell; most texts are those of the look before, and so are their cells.

    Attributes:
        number: Turns the text into the source's value, None where it is none.
        cap: Where the value parks.
    """

    file: SysfsFile
    metric: Metric
    entity: str
    part: str
    convert: Conversion
    number: Callable[[bytes], float | None]
    cap: int | None = None
    last: bytes | None = None
    cell: Cell | None = None

    def read(self, now: float) -> Cell | None:
        """Return the cell; None while the file rests."""
        data = self.file.read(now)
        if data == self.last:
            return self.cell
        self.last, self.cell = None, None
        if data is None:
            return None
        if isinstance(data, Quality):
            return Cell(self.metric, self.entity, self.part, None, data)
        self.last, self.cell = data, self._cell(data)
        return self.cell

    def _cell(self, data: bytes) -> Cell:
        number = self.number(data)
        if number is None:
            return Cell(self.metric, self.entity, self.part, None, _wordy_quality(data))
        value, quality = (None, Quality.SATURATED) if number == self.cap else self.convert.one(number)
        return Cell(self.metric, self.entity, self.part, value, quality)


@dataclass(frozen=True, slots=True)
class PortPlace:
    """Which port.

    Attributes:
        folder: `/sys/class/infiniband/<device>/ports/<number>`.
        entity: Host, device and port.
    """

    folder: str
    entity: str


class Port:
    """One port. Not shared between threads."""

    def __init__(self, place: PortPlace, device: Device, catalog: Catalog) -> None:
        self.entity = place.entity
        self.device = device
        self._catalog = catalog
        self._links = self._link_values(place.folder)
        self._counters = self._found(place.folder, PORT_COUNTERS)
        self._hardware = self._found(place.folder, HARDWARE_COUNTERS)
        self._lifespan_seconds = _lifespan_seconds(f"{place.folder}/hw_counters/lifespan")
        self._hardware_cells: list[Cell] = []
        self._hardware_at: float | None = None

    def read(self, now: float) -> tuple[list[Cell], Link]:
        """Return what the port says at a monotonic time."""
        cells = _cells((*self._links.values(), *self._counters.values()), now)
        cells += self._of_hardware(now)
        rate = self._links.get("rate")
        downed = self._counters.get(_DOWNED)
        link = Link(
            state=_integer(self._links.get("state")),
            rate=rate_of(rate.last.decode(errors="replace")) if rate and rate.last else None,
            downed=_integer(downed),
        )
        return cells, link

    def close(self) -> None:
        """Close the files."""
        for value in (*self._links.values(), *self._counters.values(), *self._hardware.values()):
            value.file.close()

    def _link_values(self, folder: str) -> dict[str, _Value]:
        there = _names(folder)
        return {
            name: self._value(
                SysfsFile(f"{folder}/{name}", self.device, self.device.states), CounterFile(name, metric), number
            )
            for name, (metric, number) in _LINK_FILES.items()
            if name in there
        }

    def _found(self, folder: str, wanted: tuple[CounterFile, ...]) -> dict[tuple[str, str], _Value]:
        """Return the counters that the port has by metric and part, the first file of each."""
        found: dict[tuple[str, str], _Value] = {}
        listed = {name: file_names(_names(f"{folder}/{name}")) for name in ("counters", "counters_ext", "hw_counters")}
        for counter in wanted:
            group, _, stem = counter.name.partition("/")
            key = (counter.metric, part_text(counter.part))
            if stem in listed[group] and key not in found:
                name, cap = listed[group][stem]
                file = SysfsFile(f"{folder}/{group}/{name}", self.device, self.device.counters)
                found[key] = self._value(file, counter._replace(cap=cap or counter.cap), _counted)
        return found

    def _value(self, file: SysfsFile, counter: CounterFile, number: Callable[[bytes], float | None]) -> _Value:
        metric = self._catalog.get(counter.metric)
        convert = conversion(metric, Source("fabric", counter.name, counter.scale))
        return _Value(file, metric, self.entity, part_text(counter.part), convert, number, counter.cap)

    def _of_hardware(self, now: float) -> list[Cell]:
        """Return the counters that the hardware refreshes once in a lifespan; inside it they are not read again."""
        if self._hardware_at is None or now - self._hardware_at >= self._lifespan_seconds:
            self._hardware_cells = _cells(self._hardware.values(), now)
            self._hardware_at = now
        return self._hardware_cells


def _cells(values: Iterable[_Value], now: float) -> list[Cell]:
    return [cell for value in values if (cell := value.read(now)) is not None]


def _integer(value: _Value | None) -> int | None:
    """Return the number in a value's text, None where there is none now."""
    number = value.number(value.last) if value is not None and value.last is not None else None
    return None if number is None else int(number)


def _counted(data: bytes) -> int | None:
    try:
        return int(data)
    except ValueError:
        return None


def _numbered(data: bytes) -> int | None:
    return state_number(data.decode(errors="replace"))


def _bits_per_second(data: bytes) -> float | None:
    rate = rate_of(data.decode(errors="replace"))
    return None if rate is None else rate.gigabits * GIGABIT


_LINK_FILES: dict[str, tuple[str, Callable[[bytes], float | None]]] = {
    "state": ("fabric_port_state", _numbered),
    "phys_state": ("fabric_port_physical_state", _numbered),
    "rate": ("fabric_port_rate_bits_per_second", _bits_per_second),
}
_DOWNED = ("fabric_port_link_downed_total", "")


def port_facts(folder: str, device_folder: str, number: str) -> Attributes:
    """Return what a port is: link layer, network device, model and firmware of its card."""
    facts = (
        ("link_layer", _first_line(f"{folder}/link_layer")),
        ("netdev", _network_device(f"{device_folder}/device/net", number)),
        ("hca_type", _first_line(f"{device_folder}/hca_type")),
        ("firmware", _first_line(f"{device_folder}/fw_ver")),
    )
    return tuple((name, plain_text(value, ATTRIBUTE_CHARACTERS)) for name, value in facts if value)


def _network_device(folder: str, number: str) -> str:
    """Return the network device of a port: the one with its number, or the only one."""
    names = _names(folder)
    wanted = str(int(number) - 1) if number.isdecimal() else ""
    numbered = [name for name in names if _first_line(f"{folder}/{name}/dev_port") == wanted]
    if numbered:
        return numbered[0]
    return names[0] if len(names) == 1 else ""


def _lifespan_seconds(path: str) -> float:
    text = _first_line(path)
    return int(text) / 1000 if text.isascii() and text.isdigit() else 0.0


def _wordy_quality(data: bytes) -> Quality:
    """Return why a text in a counter's place is no number: `N/A (no PMA)` and the like, or something odd."""
    words = data.strip().upper()
    if words.startswith(b"N/A") or b"NO PMA" in words:
        return Quality.ABSENT_NOT_SUPPORTED
    return Quality.BAD_PARSE if words else Quality.ABSENT_SOURCE_BLANK


def _first_line(path: str) -> str:
    try:
        with open(path, errors="replace") as file:  # noqa: PTH123 # paths are texts here, as there are many
            return file.readline(ATTRIBUTE_CHARACTERS).strip()
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 # names alone are wanted
    except OSError:
        return []
