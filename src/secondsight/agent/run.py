"""Put an agent together and run it until told to stop: readers, spool, shipper."""

import logging
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from secondsight.agent.aside import Aside
from secondsight.agent.config import AgentConfig
from secondsight.agent.counts import Counts
from secondsight.agent.definitions import KeptDefinitions
from secondsight.agent.host import boot_id
from secondsight.agent.offset import ClockOffset
from secondsight.agent.readers import Shared, readers_of
from secondsight.agent.sample import Hooks, Sampler
from secondsight.agent.selfread import ReadDurations, SelfParts, SelfReader, resident_bytes
from secondsight.agent.ship import ShipConfig, ShipParts, Shipper
from secondsight.agent.spool import Spool
from secondsight.agent.transport import GatewayTransport, Transport
from secondsight.agent.write import Sender, TickWriter
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

    spool: Spool
    definitions: KeptDefinitions
    counts: Counts
    offset: ClockOffset
    durations: ReadDurations


def run_agent(config: AgentConfig, clock: Clock, stop: threading.Event, transport: Transport | None = None) -> None:
    """Run an agent until `stop` is set, then deliver what is there, for at most `config.stop_seconds`.

    All threads have ended when it returns, except one of a reader that hangs.

    Args:
        config: Settings.
        clock: Clock of the host.
        stop: Set it to end.
        transport: How to reach the gateway; made from the settings if None.

    Raises:
        Retryable: The spool cannot be opened.
        Permanent: Another agent has the spool, or settings are wrong.
    """
    parts = _parts(config, clock)
    readers = _readers(config, clock, parts)
    writer = TickWriter(
        Sender(config.collector, config.host, boot_id(config.root)),
        parts.spool,
        parts.definitions,
        parts.offset,
        clock,
        parts.counts,
    )
    hooks = Hooks(writer.write, parts.durations.observe, parts.offset.forget)
    sampler = Sampler(readers, hooks, clock, parts.counts, host_id=config.host)
    shipper = _shipper(config, clock, parts, transport)
    shipping = threading.Thread(target=shipper.run, args=(stop,), name="ship", daemon=True)
    logger.info("agent %s starts with %s", config.collector, ", ".join(reader.name for reader in readers))
    sampler.start()
    shipping.start()
    try:
        stop.wait()
    finally:
        stop.set()
        _end(config, sampler, shipper, shipping, parts)


def _parts(config: AgentConfig, clock: Clock) -> _Parts:
    spool = Spool(config.spool_dir / "frames", config.spool_mib * MIB, clock)
    return _Parts(spool, KeptDefinitions(config.spool_dir / "definitions"), Counts(), ClockOffset(), ReadDurations())


def _readers(config: AgentConfig, clock: Clock, parts: _Parts) -> Sequence[Reader]:
    catalog = load_catalog(config.catalog_files)
    own = SelfParts(parts.spool, config.spool_mib * MIB, parts.counts, parts.durations, clock.now_ms(), resident_bytes)
    reader = SelfReader(
        catalog, clock, own, collector_id=config.collector, host_id=config.host, interval_ms=config.interval_ms
    )
    return [reader, *readers_of(config, Shared(catalog, clock, parts.counts, parts.offset))]


def _shipper(config: AgentConfig, clock: Clock, parts: _Parts, transport: Transport | None) -> Shipper:
    return Shipper(
        ShipParts(
            spool=parts.spool,
            transport=transport or GatewayTransport(config.gateway, config.token_file, clock, ca_file=config.ca_file),
            definitions=parts.definitions.known,
            aside=Aside(config.spool_dir / "refused", config.aside_mib * MIB, clock),
            offset=parts.offset,
            counts=parts.counts,
            random=random.SystemRandom().random,
        ),
        clock,
        ShipConfig(batch_seconds=config.batch_seconds),
    )


def _end(config: AgentConfig, sampler: Sampler, shipper: Shipper, shipping: threading.Thread, parts: _Parts) -> None:
    hanging = sampler.stop()
    if hanging:
        logger.warning("left behind, as they hang: %s", ", ".join(hanging))
    shipping.join(config.stop_seconds)
    try:
        left = shipping.is_alive() or not shipper.drain(config.stop_seconds)
    finally:
        shipper.close()
        shipping.join(ABORT_SECONDS)
        parts.spool.close()
    logger.info("agent ended, %d frames left in the spool", parts.spool.records if left else 0)
