"""Write down what a driver answered as a test case: a scenario of the stub, and the rows that come of it.

UUIDs and serial numbers are replaced; the rest (product, versions, values, return codes) is kept. `tests/nvml_stub`
says what the lines mean, `tests/test_nvml_values.py` replays them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from secondsight.agent.nvml.channel import INSTANCE, MAIN, NOT_ASKED, NOT_READ
from secondsight.agent.nvml.child import calls
from secondsight.agent.nvml.decode import Decoded
from secondsight.agent.nvml.devices import Present
from secondsight.agent.nvml.driver import Record
from secondsight.agent.nvml.parts import numbered
from secondsight.agent.nvml.plan import PER_FAN, PER_LINK

MIG_DEVICES_MAXIMUM = 7
TEXTS = ("name", "vbios", "board_part", "inforom")
_FIELD = re.compile(r"FI (\d+)(?:@(\d+))?").fullmatch
_METRIC = re.compile(r"GPM (\d+)").fullmatch

Rows = Mapping[str, Mapping[str, Any]]


def case_of(gpus: Sequence[Present], records: Iterable[Record], rows: Rows, note: str) -> dict[str, Any]:
    """Return a case.

    Args:
        gpus: Who was read.
        records: What the driver answered, the rarely read included.
        rows: "ENTITY PART" -> metric -> physical value, or the name of the quality where there is none.
        note: What the case shows.
    """
    slots = {gpu.number: slot for slot, gpu in enumerate(gpus)}
    names = {gpu.uuid: anonymous(slot) for slot, gpu in enumerate(gpus)}
    lines = [f"host bare {len(gpus)}"]
    for slot, gpu in enumerate(gpus):
        lines += _identity(slot, gpu)
    for record in sorted(records, key=lambda one: (one.number, one.what, one.instance)):
        if record.layout is not None and record.number in slots:
            prefix = _prefix(slots[record.number], record, gpus[slots[record.number]])
            lines += _answers(prefix, record.layout.names, record.layout.decode([record.body]))
    renamed = {_renamed(row, names): dict(cells) for row, cells in rows.items()}
    return {"note": note, "gpus": len(gpus), "scenario": lines, "rows": renamed}


def anonymous(slot: int) -> str:
    """Return the UUID that a recorded GPU is given."""
    return f"GPU-{slot:08x}-0000-4000-8000-000000000000"


def _identity(slot: int, gpu: Present) -> Iterator[str]:
    yield f"gpu {slot} uuid = {anonymous(slot)}"
    yield f"gpu {slot} serial = 16500000000{slot:02d}"
    yield f"gpu {slot} pci = {gpu.pci_bus_id}"
    if gpu.minor is not None:
        yield f"gpu {slot} minor = {gpu.minor}"
    for name in TEXTS:
        if name in gpu.facts:
            yield f"gpu {slot} {name} = {gpu.facts[name]}"
    if gpu.instances:
        yield f"gpu {slot} nvmlDeviceGetMaxMigDeviceCount = {MIG_DEVICES_MAXIMUM}"
    place = 0
    for one in gpu.instances:
        for compute in one.compute:
            described = f"profile {one.profile or '?'} memory {one.memory_mib << 20} slices {one.gpu_slices}"
            yield f"gpu {slot} mig {place} gi {one.gi} ci {compute} {described}"
            place += 1


def _prefix(slot: int, record: Record, gpu: Present) -> str:
    """Return what the lines of a record begin with: the GPU, or the first MIG device of the GPU instance."""
    if record.what != INSTANCE:
        return f"gpu {slot}"
    before = sum(len(one.compute) for one in gpu.instances if one.gi < record.instance)
    return f"gpu {slot} mig {before}"


def _answers(prefix: str, names: Sequence[str], decoded: Decoded) -> Iterator[str]:
    for function, counted in ((PER_LINK[0], "field 91"), (PER_FAN[0], "nvmlDeviceGetNumFans")):
        parts = sum(numbered(name)[0] == function for name in names)
        if parts:
            yield f"{prefix} {counted} = {parts}"
            yield from [f"{prefix} {counted} type ui"] if counted.startswith("field") else []
    filled: set[str] = set()
    for place, name in enumerate(names):
        code = int(decoded.codes[0, place])
        value = decoded.odd.get((0, place), int(decoded.whole[0, place]))
        if code in (NOT_ASKED, NOT_READ):
            continue
        if (field := _FIELD(name)) is not None:
            yield from _field(f"{prefix} field {field[1]}", field[2], code, value)
        elif (metric := _METRIC(name)) is not None:
            answer = f"return {code}" if code else f"= {float(decoded.real[0, place])!r}"
            yield f"{prefix} gpm {metric[1]} {answer}"
        else:
            yield f"{prefix} {name} " + (f"return {code}" if code else f"= {value}")
            function = numbered(name)[0].partition(".")[0].partition("(")[0]
            if not code and function not in filled and "." in name:
                filled.add(function)
                yield from _rest(prefix, function, names)


def _field(stem: str, scope: str | None, code: int, value: float) -> Iterator[str]:
    place = "" if scope is None else f" scope {scope}"
    if code:
        yield f"{stem}{place} return {code}"
        return
    yield f"{stem}{place} = {value}"
    yield f"{stem} type {'sll' if value < 0 else 'ull'}"


def _rest(prefix: str, function: str, names: Sequence[str]) -> Iterator[str]:
    """Give a value to the members of a structure that were not asked for, as a call answers with all or none."""
    shape = calls.SHAPES.get(function)
    if shape is None:
        return
    for member, *_ in shape.struct._fields_:
        if f"{function}.{member}" not in names and member not in ("version", "clusterUuid", shape.key):
            yield f"{prefix} {function}.{member} = 0"


def _renamed(row: str, names: Mapping[str, str]) -> str:
    for uuid, name in names.items():
        row = row.replace(uuid, name)
    return row


def is_of_gpus(record: Record) -> bool:
    """Tell whether a record is of a GPU or of an instance, taken each tick."""
    return record.what in (MAIN, INSTANCE)
