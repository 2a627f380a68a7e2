"""Look at the GPUs of this host: on the PCI bus, through the driver's library, and whether both agree.

The library is only ever called in a child process, which is waited for no longer than a deadline.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from secondsight.agent.config import AgentConfig
from secondsight.agent.health.judge import nvml_code
from secondsight.agent.health.words import short
from secondsight.agent.host.proc import gpu_functions
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.nvml import channel
from secondsight.agent.nvml.devices import Present, PresentGpus, described
from secondsight.agent.nvml.driver import Values
from secondsight.agent.nvml.plan import plan_of
from secondsight.agent.nvml.settings import LIBRARY, is_there
from secondsight.agent.nvml.source import GpuSource, Host, gpu_source
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.doctor.findings import Finding, fault, ok, skipped, warning

WAIT_SECONDS = 20.0
TICK_SECONDS = 1.0
SETTLED_TICKS = 3
"""The first readings of a GPU also wake it; the last one of so many is told."""

SLOW_SECONDS = 0.3
HANGS = (
    "look for Xid and NVRM lines in the kernel log (dmesg); nvidia-smi may hang too. Drain the host, then reset the GPU"
)


def gpus(config: AgentConfig, clock: Clock, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check that every GPU on the bus can be read."""
    on_bus = pci_gpus(config.root)
    if config.nvml.enabled == "off":
        yield skipped("agent.nvml.enabled is off")
        return
    if not is_there(config.nvml, environment):
        yield _without_library(config, on_bus)
        return
    source = gpu_source(
        config.nvml,
        plan_of(load_catalog(config.catalog_files)),
        Host(config.host, config.rack, config.root),
        clock,
        lambda: 0.5,
        (PresentGpus(), KnownGpus(config.host)),
    )
    try:
        yield from _through_library(source, on_bus, clock)
    finally:
        source.driver.close()


def pci_gpus(root: Path) -> int | None:
    """Return how many NVIDIA GPUs the PCI bus has, None where the kernel does not list it."""
    folder = root / "sys/bus/pci/devices"
    try:
        names = os.listdir(folder)  # noqa: PTH208 # names are all that is wanted
    except OSError:
        return None
    return gpu_functions([(_text(folder / name / "vendor"), _text(folder / name / "class")) for name in names])


def _without_library(config: AgentConfig, on_bus: int | None) -> Finding:
    if config.nvml.library is not None:
        return fault(f"agent.nvml.library {config.nvml.library} is not there", "mend the path, or leave it out")
    if on_bus:
        remedy = "install the driver; in a container, use the nvidia runtime class or mount the library into it"
        return fault(f"{on_bus} NVIDIA GPU(s) on the PCI bus, and no {LIBRARY} to read them with", remedy)
    return ok(f"no NVIDIA GPU on this host, and no {LIBRARY}")


def _through_library(source: GpuSource, on_bus: int | None, clock: Clock) -> Iterator[Finding]:
    values = _read(source, clock)
    driver = source.driver
    if values is None:
        why = driver.trouble or f"it did not answer within {WAIT_SECONDS:g} s"
        yield fault(f"the driver cannot be read: {why}", HANGS)
        return
    if values.code == channel.STARTING:
        yield fault(f"the driver was not ready within {WAIT_SECONDS:g} s: a GPU may hold it up", HANGS)
        return
    if values.code:
        yield fault(f"the driver refuses with NVML code {values.code}", nvml_code(values.code))
        return
    present = described(driver.devices) if driver.devices is not None else []
    yield _counted(present, values.listed, on_bus)
    by_number = {one.number: one for one in present}
    for record in values.records:
        gpu = by_number.get(record.number)
        if gpu is not None and record.what == channel.BUSY:
            yield fault(f"GPU {gpu.uuid} at {gpu.pci_bus_id} does not answer", HANGS)
        elif gpu is not None and record.what == channel.MAIN and record.code:
            yield fault(f"GPU {gpu.uuid} at {gpu.pci_bus_id}: NVML code {record.code}", nvml_code(record.code))
    yield from _speed(values)


def _read(source: GpuSource, clock: Clock) -> Values | None:
    """Return the last of a few readings, None where the driver gives none in time."""
    end = clock.monotonic_seconds() + WAIT_SECONDS
    values: Values | None = None
    settled = 0
    while settled < SETTLED_TICKS and clock.monotonic_seconds() < end:
        begun = clock.monotonic_seconds()
        found = source.driver.tick(TICK_SECONDS, TICK_SECONDS * 0.8)
        values = found or values
        has_said = found is not None and (found.code > 0 or (found.code == 0 and source.driver.devices is not None))
        settled += has_said
        clock.sleep(TICK_SECONDS - (clock.monotonic_seconds() - begun))
    return values


def _counted(present: Sequence[Present], listed: int, on_bus: int | None) -> Finding:
    versions = present[0].facts if present else {}
    words = f"driver {versions.get('driver', 'of unknown version')}, {listed} GPU(s)"
    models = sorted({one.facts.get("name", "") for one in present} - {""})
    words += f": {', '.join(models)}" if models else ""
    if on_bus is not None and on_bus > listed:
        remedy = "a GPU fell off the bus or is bound elsewhere (vfio): see the kernel log and lspci -d 10de:"
        return fault(f"{words}; the PCI bus has {on_bus}", remedy)
    if listed > len(present):
        return warning(f"{words}; {listed - len(present)} of them could not be opened", "see the kernel log")
    return ok(words)


def _speed(values: Values) -> Iterator[Finding]:
    seconds = [record.taken_us / 1e6 for record in values.records if record.what == channel.MAIN]
    if not seconds:
        return
    slowest = max(seconds)
    if slowest > SLOW_SECONDS:
        remedy = "switch persistence mode on (nvidia-persistenced): without it every reading wakes the GPU"
        yield warning(f"the slowest GPU takes {short(slowest)} to be read", remedy)
    else:
        yield ok(f"the slowest GPU takes {short(slowest)} to be read")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
