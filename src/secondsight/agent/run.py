"""Put an agent together and run it until told to stop: readers, spool, shipper."""

import logging
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from secondsight.agent.client.enrol import Enroller, Enrolling, EnrolParts, EnrolSettings
from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.client.transport import GatewayTransport, Transport
from secondsight.agent.config import AgentConfig
from secondsight.agent.counts import Counts
from secondsight.agent.footprint import settle
from secondsight.agent.health.cost import ProcessCosts
from secondsight.agent.health.gather import Insight
from secondsight.agent.health.heartbeat import HeartbeatReader
from secondsight.agent.health.selfread import ReadDurations, SelfParts, SelfReader, resident_bytes
from secondsight.agent.health.vitals import Vitals
from secondsight.agent.host.reader import boot_id
from secondsight.agent.plan.attach import Means, Sampling
from secondsight.agent.readers import Shared, readers_of
from secondsight.agent.ship.aside import Aside
from secondsight.agent.ship.shipper import ShipConfig, ShipParts, Shipper
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.classes import Spools
from secondsight.agent.tick.lane import Hooks
from secondsight.agent.tick.sample import Sampler
from secondsight.agent.tick.schedule import STEP_MS
from secondsight.agent.write.definitions import KeptDefinitions
from secondsight.agent.write.hold import HeldTicks
from secondsight.agent.write.journal import Journal
from secondsight.agent.write.split import Splitter
from secondsight.agent.write.writer import Keeping, Sender, TickWriter
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.contracts import Reader

logger = logging.getLogger(__name__)

MIB = 1 << 20
ABORT_SECONDS = 2.0
"""How long a request takes to end once its connection is closed under it."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What readers, writer and shipper share."""

    spools: Spools
    definitions: KeptDefinitions
    counts: Counts
    offset: ClockOffset
    durations: ReadDurations
    vitals: Vitals


def run_agent(config: AgentConfig, clock: Clock, stop: threading.Event, transport: Transport | None = None) -> None:
    """Run an agent until `stop` is set, then deliver what is there, for at most `config.stop_seconds`.

    All threads have ended when it returns, except one of a reader that hangs.

    Args:
        config: Settings.
        clock: Clock of the host.
        stop: Set it to end.
        transport: How to reach the gateway; made from the settings if None.

    Raises:
        Permanent: Another agent has the spool, or settings are wrong.
    """
    started_ms = clock.now_ms()
    parts = _parts(config, clock)
    sender = Sender(config.collector, config.host, boot_id(config.root))
    writer, held = _writing(config, clock, parts, sender)
    sampling = _sampling(config, clock, parts, (sender, held), own_transport=transport is None)
    heartbeat = HeartbeatReader(load_catalog(config.catalog_files), config.collector, config.host)
    readers = [*sampling.gated(_readers(config, clock, parts)), heartbeat]
    hooks = Hooks(sampling.stage.deliver, parts.durations.observe, parts.offset.forget)
    sampler = Sampler(readers, hooks, clock, parts.counts, host_id=config.host)
    enrolling = _enrolling(config, clock, parts.counts)
    told = enrolling.told(sampling.told(transport or _transport(config, clock)))
    shipper = _shipper(config, clock, parts, held, told)
    heartbeat.look_at(
        Insight(
            config=config,
            spools=parts.spools,
            writer=writer,
            held=held,
            counts=parts.counts,
            offset=parts.offset,
            sampler=sampler,
            shipper=shipper,
            stage=sampling.stage,
            enroller=enrolling.enroller,
            vitals=parts.vitals,
            costs=ProcessCosts(clock),
            clock=clock,
            started_ms=started_ms,
        )
    )
    shipping = threading.Thread(target=shipper.run, args=(stop,), name="ship", daemon=True)
    logger.info("agent %s starts with %s", config.collector, ", ".join(reader.name for reader in readers))
    settle()
    enrolling.start(shipper.hurry)
    sampling.start()
    sampler.start()
    shipping.start()
    try:
        stop.wait()
    finally:
        stop.set()
        enrolling.end()
        _end(config, (sampler, sampling, held, heartbeat), shipper, shipping, parts)


def _parts(config: AgentConfig, clock: Clock) -> _Parts:
    counts = Counts()
    spools = Spools(config.spool_dir, _bounds(config), clock, counts, collector_id=config.collector)
    note_step_back(spools.newest_ms, clock.now_ms(), counts)
    definitions = KeptDefinitions(config.spool_dir / "definitions", clock, oldest_needed_ms=spools.oldest_needed_ms)
    return _Parts(spools, definitions, counts, ClockOffset(), ReadDurations(), Vitals())


def _writing(config: AgentConfig, clock: Clock, parts: _Parts, sender: Sender) -> tuple[TickWriter, HeldTicks]:
    """Make what takes ticks to the spool, with those that an earlier process held when it ended."""
    keeping = Keeping(parts.spools, parts.definitions, Splitter(load_catalog(config.catalog_files)))
    writer = TickWriter(sender, keeping, parts.offset, clock, parts.counts)
    held = HeldTicks(writer, Journal(config.spool_dir, parts.counts), clock, config.batch_seconds)
    held.recover(parts.definitions.known)
    return writer, held


def note_step_back(newest_ms: int, now_ms: int, counts: Counts) -> None:
    """Say that the wall clock went back while no agent ran; what was spooled before stays and is delivered."""
    if newest_ms - now_ms > STEP_MS:
        counts.add("clock_stepped")
        words = "the clock of this host is %.1f s behind what it was when the spool was last written; both are kept"
        logger.warning(words, (newest_ms - now_ms) / 1000)


def _bounds(config: AgentConfig) -> SpoolBounds:
    return SpoolBounds(
        config.spool_mib * MIB,
        config.spool_hours * 3600.0,
        config.spool_floor_mib * MIB,
        config.spool_floor_percent / 100,
    )


def _readers(config: AgentConfig, clock: Clock, parts: _Parts) -> Sequence[Reader]:
    catalog = load_catalog(config.catalog_files)
    own = SelfParts(parts.spools, config.spool_mib * MIB, parts.counts, parts.durations, clock.now_ms(), resident_bytes)
    reader = SelfReader(
        catalog, clock, own, collector_id=config.collector, host_id=config.host, interval_ms=config.interval_ms
    )
    shared = Shared(catalog, clock, parts.counts, parts.offset, vitals=parts.vitals)
    return [reader, *readers_of(config, shared)]


def _sampling(
    config: AgentConfig, clock: Clock, parts: _Parts, writing: tuple[Sender, HeldTicks], *, own_transport: bool
) -> Sampling:
    catalog = load_catalog(config.catalog_files)
    folder, interval_ms = config.spool_dir, config.interval_ms
    means = Means(config.sampling, catalog, clock, parts.offset, parts.counts, folder, interval_ms)
    return Sampling(writing[0], writing[1].write, means, _transport(config, clock) if own_transport else None)


def _enrolling(config: AgentConfig, clock: Clock, counts: Counts) -> Enrolling:
    if config.enrol is None:
        return Enrolling(None)
    return Enrolling(enroller_of(config, config.enrol, clock, counts))


def enroller_of(config: AgentConfig, settings: EnrolSettings, clock: Clock, counts: Counts) -> Enroller:
    """Return what keeps the token of an agent good."""
    random_number = random.SystemRandom().random
    asking, names = _transport(config, clock), (config.collector, config.host)
    return Enroller(EnrolParts(settings, asking, config.spool_dir, config.root, *names, counts, random_number), clock)


def _transport(config: AgentConfig, clock: Clock) -> GatewayTransport:
    return GatewayTransport(
        config.gateway,
        config.token_path,
        clock,
        ca_file=config.ca_file,
        proxy=config.proxy,
        client=config.client,
    )


def _shipper(config: AgentConfig, clock: Clock, parts: _Parts, held: HeldTicks, transport: Transport) -> Shipper:
    return Shipper(
        ShipParts(
            spools=parts.spools,
            transport=transport,
            definitions=parts.definitions.known,
            aside=Aside(config.spool_dir / "refused", config.aside_mib * MIB, clock),
            offset=parts.offset,
            counts=parts.counts,
            random=random.SystemRandom().random,
            collector_id=config.collector,
            host_id=config.host,
            write_due=held.write_due if config.batch_seconds > 0 else None,
        ),
        clock,
        ShipConfig(batch_seconds=config.batch_seconds),
    )


def _end(
    config: AgentConfig,
    sampled: tuple[Sampler, Sampling, HeldTicks, HeartbeatReader],
    shipper: Shipper,
    shipping: threading.Thread,
    parts: _Parts,
) -> None:
    sampler, sampling, held, heartbeat = sampled
    hanging = sampler.stop()
    sampling.end()
    held.close()
    if hanging:
        logger.warning("left behind, as they hang: %s", ", ".join(hanging))
    shipping.join(config.stop_seconds)
    try:
        left = shipping.is_alive() or not shipper.drain(config.stop_seconds)
    finally:
        shipper.close()
        shipping.join(ABORT_SECONDS)
        heartbeat.say_ended()
        parts.spools.close()
    logger.info("agent ended, %d frames left in the spool", parts.spools.records if left else 0)
