"""Turn the JSON of `rocm-smi --showallinfo --json` into rows.

All values are texts, keys carry their units in brackets, and `system` is no card. Keys that stand for no reading of
ours (clock tables, firmware, topology) are left aside.
"""

import json
import re
from typing import Any

from secondsight.agent.smi.rows import Document, Refusal, Row, Subject
from secondsight.agent.smi.texts import Text

_BEGINNING = re.compile(r"^\s*\{", re.MULTILINE).search
_CARD = re.compile(r"card(\d+)").fullmatch
_UNIT = re.compile(r"\s*\(([A-Za-z%/µ]+)\)\s*$")

_KEYS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), column)
    for pattern, column in (
        (r"temperature \(sensor edge\)", "temperature.edge"),
        (r"temperature \(sensor junction\)", "temperature.junction"),
        (r"temperature \(sensor memory\)", "temperature.memory"),
        (r"temperature \(sensor hbm (\d)\)", "temperature.hbm"),
        (r"sclk clock speed:?", "clocks.current.sm"),
        (r"mclk clock speed:?", "clocks.current.memory"),
        (r"fan speed", "fan.speed"),
        (r"average graphics package power", "power.draw.average"),
        (r"current socket graphics package power", "power.draw.instant"),
        (r"max graphics package power", "power.limit"),
        (r"accumulated energy", "energy.total"),
        (r"gpu use", "utilization.gpu"),
        (r"gpu memory read/write activity", "utilization.memory"),
        (r"vram total memory", "memory.total"),
        (r"vram total used memory", "memory.used"),
        (r"pcie replay count", "pci.replay_counter"),
        (r"pci bus", "pci.bus_id"),
        (r"serial number", "serial"),
        (r"unique id", "uuid"),
        (r"vbios version", "vbios_version"),
        (r"card series", "name"),
    )
)


def read_rocm(text: str) -> Document:
    """Return what the JSON holds; never raises."""
    document = Document("rocm")
    before, json_text = _parted(text.lstrip("\ufeff"))
    for number, line in enumerate(before.splitlines(), 1):
        if line.strip():
            document.refusals.append(Refusal(number, "line", f"no JSON yet: {line.strip()[:60]!r}"))
    try:
        told = json.loads(json_text)
    except ValueError as error:
        document.refusals.append(Refusal(1, "json", f"it is no JSON: {error}"))
        return document
    if not isinstance(told, dict):
        document.refusals.append(Refusal(1, "json", "it is no object of cards"))
        return document
    system = told.get("system")
    driver = str(system.get("Driver version", "")) if isinstance(system, dict) else ""
    for name, facts in told.items():
        card = _CARD(name)
        if card is not None and isinstance(facts, dict):
            cells = _cells(facts) | {"index": Text(card[1])}
            document.rows.append(Row(1, Subject.GPU, cells | ({"driver_version": Text(driver)} if driver else {})))
    return document


def _parted(text: str) -> tuple[str, str]:
    """Return what the program warns of before the JSON, and the JSON."""
    found = _BEGINNING(text)
    start = found.start() if found else 0
    return text[:start], text[start:].strip()


def _cells(facts: dict[str, Any]) -> dict[str, Text]:
    cells: dict[str, Text] = {}
    for key, value in facts.items():
        unit = _UNIT.search(key)
        bare = _UNIT.sub("", key) if unit else key
        known = next(((found, column) for pattern, column in _KEYS if (found := pattern.fullmatch(bare))), None)
        if known is None:
            cells[f"rocm.{key.lower()}"] = Text(str(value))
            continue
        found, column = known
        if unit and unit[1].lower() == "level":
            continue
        name = f"{column}.{found[1]}" if found.groups() else column
        cells[name] = Text(str(value), "" if unit is None else unit[1])
    return cells
