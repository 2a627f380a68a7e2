"""Name every reader that an agent's settings ask for: one line a source."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.agent.bootfile import BootFile
from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.config import AgentConfig
from secondsight.agent.counts import Counts
from secondsight.agent.fabric.reader import FabricPlace, FabricReader
from secondsight.agent.health.vitals import Vitals
from secondsight.agent.host.chassis import ChassisReader
from secondsight.agent.host.place import Place
from secondsight.agent.host.reader import HostReader, boot_id
from secondsight.agent.jobs.inventory import DriverFiles, FirstOf
from secondsight.agent.jobs.kept import KeptIntervals
from secondsight.agent.jobs.report import Means, Station
from secondsight.agent.kmsg.echo import WithoutEchoes
from secondsight.agent.kmsg.heard import HeardXids
from secondsight.agent.kmsg.reader import KernelLogReader, LogHost
from secondsight.agent.kmsg.untold import UntoldXids
from secondsight.agent.kmsg.xidcount import XidCells, XidCountReader
from secondsight.agent.known_gpus import KnownGpus
from secondsight.agent.nvml.devices import PresentGpus
from secondsight.agent.scrape.attribution import Allocations
from secondsight.agent.turn import SHARED_FILE
from secondsight.catalog.load import Catalog
from secondsight.clock import Clock
from secondsight.contracts import Reader
from secondsight.mapping.cells import ContentBuilder


@dataclass(frozen=True, slots=True)
class Shared:
    """What every reader of an agent works with."""

    catalog: Catalog
    clock: Clock
    counts: Counts
    offset: ClockOffset = field(default_factory=ClockOffset)
    present: PresentGpus = field(default_factory=PresentGpus)
    vitals: Vitals = field(default_factory=Vitals)


def readers_of(config: AgentConfig, shared: Shared) -> Iterator[Reader]:
    """Make the readers of everything outside the agent itself.

    Raises:
        Rejected: `bad_config`.
    """
    catalog, clock, counts = shared.catalog, shared.clock, shared.counts
    if config.host_metrics:
        yield from _host(config, shared)
    if config.fabric.enabled:
        fabric_place = FabricPlace(config.host, config.rack, config.root, config.interval_ms)
        yield FabricReader(config.fabric, fabric_place, catalog, clock, counts)
    if config.simulate is not None:
        from secondsight.agent.simulate.reader import SimulateReader

        yield SimulateReader(config.simulate, catalog, config.host)
    known = KnownGpus(config.host)
    yield from _gpus(config, shared, known)
    yield from _allocators(config, shared, known)
    yield from _workloads(config, shared)


def _gpus(config: AgentConfig, shared: Shared, known: KnownGpus) -> Iterator[Reader]:
    """Make the readers of the kernel log and of GPUs, each Xid of which is told and counted once."""
    catalog, clock, counts = shared.catalog, shared.clock, shared.counts
    heard, boot, log_dir = HeardXids(), boot_id(config.root), config.spool_dir / "kernel-log"
    untold = UntoldXids(BootFile(log_dir / "untold-xids.json", boot, counts))
    if config.kernel_log.enabled:
        log_host = LogHost(config.host, config.rack, config.root, boot, log_dir / "state.json", known, heard, untold)
        yield KernelLogReader(config.kernel_log, log_host, catalog, clock, counts)
    for reader in (*_driver(config, shared, known), *_gpu_programs(config, shared, known)):
        if hasattr(reader, "vitals"):
            shared.vitals.register(reader.name, reader.vitals)
        yield WithoutEchoes(reader, heard, untold, counts)
    for reader in _exporters(config, shared, known):
        yield WithoutEchoes(reader, heard, untold, counts)
    if not config.kernel_log.enabled and config.nvml.enabled != "off":
        builder = ContentBuilder(config.host, config.rack)
        yield XidCountReader(XidCells(catalog, untold), builder, clock, config.interval_ms)


def _exporters(config: AgentConfig, shared: Shared, known: KnownGpus) -> Iterator[Reader]:
    """Make the readers of exporters and engines, importing what reads them where there are any."""
    if config.scrape:
        from secondsight.agent.scrape.reader import ScrapePlace, ScrapeReader

        place = ScrapePlace(config.host, config.rack, known, lambda target: _labelled(config, shared, target))
        for target in config.scrape:
            yield ScrapeReader(target, shared.catalog, shared.clock, shared.counts, place)


def _driver(config: AgentConfig, shared: Shared, known: KnownGpus) -> Iterator[Reader]:
    """Make the readers of GPUs through the driver's library."""
    if config.nvml.enabled == "off":
        return
    from secondsight.agent.nvml.readers import nvml_readers
    from secondsight.agent.nvml.source import Host

    kept = BootFile(config.spool_dir / "gpus.json", boot_id(config.root), shared.counts)
    host = Host(config.host, config.rack, config.root, config.interval_ms, kept, turn_files=_turn_files(config))
    tables = (shared.present, known)
    yield from nvml_readers(config.nvml, host, shared.catalog, shared.clock, shared.counts, tables)


def _turn_files(config: AgentConfig) -> tuple[Path, ...]:
    """Return where processes take turns in starting the driver: all of the host, or else those of one agent."""
    return SHARED_FILE, config.spool_dir / SHARED_FILE.name


def _host(config: AgentConfig, shared: Shared) -> Iterator[Reader]:
    """Make the readers of the host itself, importing what is off by default only when it is configured."""
    place = Place(config.host, config.rack, config.root, config.interval_ms)
    yield HostReader(place, shared.catalog, shared.clock, shared.counts)
    yield ChassisReader(place, shared.catalog, shared.clock, shared.counts)
    if config.processes is not None:
        from secondsight.agent.host.processes import ProcessesReader

        yield ProcessesReader(config.processes, place, shared.catalog, shared.clock, shared.counts)
    if config.storage_probe is not None:
        from secondsight.agent.host.storage import StorageReader

        yield StorageReader(config.storage_probe, place, shared.catalog, shared.clock, shared.counts)


def _gpu_programs(config: AgentConfig, shared: Shared, known: KnownGpus) -> Iterator[Reader]:
    """Make the readers of GPUs through other programs than the driver's library, importing what is configured alone."""
    if config.dcgm is not None:
        from secondsight.agent.dcgm.reader import DcgmPlace, DcgmReader

        station = DcgmPlace(config.host, config.rack, known, _turn_files(config))
        yield DcgmReader(config.dcgm, station, shared.catalog, shared.clock, shared.counts)
    if config.smi is not None:
        from secondsight.agent.smi.reader import SmiPlace, SmiReader

        place = SmiPlace(config.host, config.rack, config.root)
        yield SmiReader(config.smi, place, shared.catalog, shared.clock, shared.counts, known)


def _labelled(config: AgentConfig, shared: Shared, target: str) -> Allocations:
    """Return what remembers the workloads that a target's labels name."""
    state = KeptIntervals(config.spool_dir / f"allocations-labels-{target}.json", shared.counts)
    return Allocations(state, lambda: shared.offset.correction_ms(shared.clock.monotonic_seconds()))


def _allocators(config: AgentConfig, shared: Shared, known: KnownGpus) -> Iterator[Reader]:
    """Make the readers of who has which GPU, importing what is configured alone."""
    gpus = FirstOf(shared.present, DriverFiles(config.root, shared.clock), known)
    means = Means(shared.catalog, shared.clock, shared.counts, shared.offset, gpus)
    station = Station(config.host, config.rack, config.root, config.spool_dir)
    if config.kubernetes is not None:
        from secondsight.agent.jobs.kubernetes import KubernetesReader

        yield KubernetesReader(config.kubernetes, station, means)
    if config.slurm is not None:
        from secondsight.agent.jobs.slurm import SlurmReader

        yield SlurmReader(config.slurm, station, means)
    if config.sacct is not None:
        from secondsight.agent.jobs.scheduler import SchedulerReader

        yield SchedulerReader(config.sacct, station, means)
    if config.lifecycle is not None:
        from secondsight.agent.jobs.lifecycle import LifecycleReader

        yield LifecycleReader(config.lifecycle, station, means)


def _workloads(config: AgentConfig, shared: Shared) -> Iterator[Reader]:
    """Make the readers of what training jobs and engines tell, importing what is configured alone."""
    if config.training is not None:
        from secondsight.agent.training.read import Place as RunPlace
        from secondsight.agent.training.read import TrainingReader

        runs = RunPlace(config.host, config.rack, config.interval_ms, config.spool_dir / "training.json")
        yield TrainingReader(config.training, runs, shared.catalog, shared.clock, shared.counts)
    if config.logs is not None:
        from secondsight.agent.training.logs import LogReader
        from secondsight.agent.training.read import Place as RunPlace

        logs = RunPlace(config.host, config.rack, config.interval_ms, config.spool_dir / "logs.json")
        yield LogReader(config.logs, logs, shared.catalog, shared.clock, shared.counts)
