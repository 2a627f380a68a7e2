"""Read which GPUs are present from the driver's files, where nothing better tells.

The driver's files give UUID, minor and bus address; they do not give MIG UUIDs, and the index only by the rule that
NVML counts in order of bus addresses.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from secondsight.agent.jobs.devices import Gpu, GpuTable
from secondsight.clock import Clock
from secondsight.mapping.identity import gpu_id

LOOK_EVERY_SECONDS = 60.0
GPUS_MAXIMUM = 256
TEXT_MAXIMUM = 65_536


class DriverFiles:
    """The GPUs of /proc/driver/nvidia; looked up once in a while. Safe to call from threads."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._folder = root / "proc/driver/nvidia/gpus"
        self._clock = clock
        self._known: tuple[float, tuple[Gpu, ...]] | None = None

    def gpus(self) -> Sequence[Gpu]:
        """Return the GPUs that the driver lists."""
        now = self._clock.monotonic_seconds()
        if self._known is None or now - self._known[0] >= LOOK_EVERY_SECONDS or not self._known[1]:
            self._known = now, driver_gpus(self._folder)
        return self._known[1]


class FirstOf:
    """The first of several tables that knows any GPU."""

    def __init__(self, *tables: GpuTable) -> None:
        self._tables = tables

    def gpus(self) -> Sequence[Gpu]:
        """Return the GPUs of the first table that has some."""
        return next((found for table in self._tables if (found := table.gpus())), ())


def driver_gpus(folder: Path) -> tuple[Gpu, ...]:
    """Return the GPUs of the driver's folder, in order of bus addresses."""
    try:
        names = sorted((path.name for path in folder.iterdir()), key=_bus_order)[:GPUS_MAXIMUM]
    except OSError:
        return ()
    found = []
    for name in names:
        try:
            with (folder / name / "information").open(errors="replace") as file:
                found.append((name, file.read(TEXT_MAXIMUM)))
        except OSError:
            continue
    gpus = [information(text, name, index) for index, (name, text) in enumerate(found)]
    return tuple(gpu for gpu in gpus if gpu is not None)


def information(text: str, bus_address: str, index: int | None) -> Gpu | None:
    """Return the GPU that an `information` file of the driver is about, or None if it names none."""
    fields = dict(re.findall(r"^\s*([^:\n]+?)\s*:[ \t]*(.*?)\s*$", text, re.MULTILINE))
    uuid = gpu_id(fields.get("GPU UUID", ""))
    if not uuid.startswith("GPU-") or "?" in uuid:
        return None
    minor = fields.get("Device Minor", "")
    return Gpu(uuid, index, int(minor) if minor.isdecimal() else None, fields.get("Bus Location", bus_address))


def _bus_order(name: str) -> list[int]:
    return [int(text, 16) for text in re.findall(r"[0-9a-fA-F]+", name)]
