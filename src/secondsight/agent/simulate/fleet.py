"""Drive simulated hosts against a gateway: the product's own frames, spool and shipper, one sender for each cluster."""

import logging
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from secondsight.agent.aside import Aside
from secondsight.agent.counts import Counts
from secondsight.agent.definitions import KeptDefinitions
from secondsight.agent.offset import ClockOffset
from secondsight.agent.ship import ShipConfig, ShipParts, Shipper
from secondsight.agent.simulate.cluster import ClusterSpec, Second, SimulatedCluster, boot_id, host_name
from secondsight.agent.simulate.config import FleetConfig
from secondsight.agent.simulate.contents import HostContents
from secondsight.agent.spool import Spool
from secondsight.agent.transport import GatewayTransport
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.errors import SecondsightError
from secondsight.wire.content import Content
from secondsight.wire.frame import Stamp, encode

logger = logging.getLogger(__name__)

MIB = 1 << 20
MEASURED_UNCERTAINTY_MS = 5
CATCH_UP_BATCH_SECONDS = 15
CAUGHT_UP = "caught-up"
"""File in the spool folder that says that the fleet is in step with the clock."""


@dataclass(slots=True)
class _Sender:
    """One cluster on its way to the gateway."""

    spec: ClusterSpec
    cluster: SimulatedCluster
    contents: HostContents
    spool: Spool
    definitions: KeptDefinitions
    shipper: Shipper
    counts: Counts


def run_fleet(config: FleetConfig, clock: Clock, stop: threading.Event) -> None:
    """Simulate until `stop` is set, then deliver what is there, for at most `config.stop_seconds`.

    Raises:
        Retryable: A spool cannot be opened.
        Permanent: Another fleet has the spool.
    """
    second = clock.now_ms() // 1000 - config.since_seconds
    senders = [_sender(config, position, second, clock) for position in range(len(config.clusters))]
    threads = [threading.Thread(target=sender.shipper.run, args=(stop,), daemon=True) for sender in senders]
    for thread in threads:
        thread.start()
    hosts = sum(sender.spec.hosts for sender in senders)
    logger.info("fleet of %d hosts starts, %d GPUs each", hosts, config.gpus_per_host)
    try:
        _simulate(config, senders, second, clock, stop)
    finally:
        stop.set()
        for sender, thread in zip(senders, threads, strict=True):
            _end(config, sender, thread)


def frames_of(spec: ClusterSpec, host: int, contents: Sequence[Content], seconds: Sequence[Second]) -> list[bytes]:
    """Return one frame per content, stamped as the host's own agent would."""
    name = host_name(spec, host)
    offset_ms = int(seconds[-1].causes.clock_offset_ms[host])
    times = np.array([second.second for second in seconds], dtype=np.int64) * 1000 + offset_ms
    stamp = Stamp(
        collector_id=name,
        host_id=name,
        source="simulate",
        spool_id=0,
        first_sequence=0,
        last_sequence=0,
        tick_times_ms=times,
        interval_ms=1000,
        boot_id=boot_id(spec, host),
        clock_offset_ms=offset_ms,
        clock_uncertainty_ms=MEASURED_UNCERTAINTY_MS,
    )
    return [encode(stamp, content) for content in contents]


def _sender(config: FleetConfig, position: int, second: int, clock: Clock) -> _Sender:
    spec = config.spec(position)
    folder = config.spool_dir / spec.name
    spool = Spool(folder / "frames", config.spool_mib * MIB, clock)
    definitions, counts = KeptDefinitions(folder / "definitions", 1024 + 8 * spec.hosts), Counts()
    parts = ShipParts(
        spool=spool,
        transport=GatewayTransport(config.gateway, config.clusters[position].token_file, clock),
        definitions=definitions.known,
        aside=Aside(folder / "refused", 4 * MIB, clock),
        offset=ClockOffset(),
        counts=counts,
        random=random.SystemRandom().random,
    )
    shipper = Shipper(parts, clock, ShipConfig(batch_seconds=0.2))
    catalog = load_catalog()
    return _Sender(
        spec, SimulatedCluster(spec, second), HostContents(spec, catalog), spool, definitions, shipper, counts
    )


def _simulate(
    config: FleetConfig, senders: Sequence[_Sender], second: int, clock: Clock, stop: threading.Event
) -> None:
    """Produce batch after batch: in large ones while behind the clock, at `speed` seconds a second, then in step."""
    while not stop.is_set():
        behind = clock.now_ms() // 1000 - second
        count = min(CATCH_UP_BATCH_SECONDS, behind) if behind > CATCH_UP_BATCH_SECONDS else config.batch_seconds
        if behind <= CATCH_UP_BATCH_SECONDS:
            _note_caught_up(config)
        due_seconds = (second + count) - clock.now_ms() / 1000
        if stop.wait(due_seconds if due_seconds > 0 else count / config.speed):
            return
        for sender in senders:
            _produce(sender, range(second, second + count))
        second += count
        if behind > config.since_seconds + 60:
            second = clock.now_ms() // 1000
            logger.warning("the simulation fell behind this machine's clock and leaves a gap")


def _note_caught_up(config: FleetConfig) -> None:
    """Leave a mark for whoever waits until the fleet is live."""
    mark = config.spool_dir / CAUGHT_UP
    if not mark.exists():
        mark.touch()


def _produce(sender: _Sender, seconds: range) -> None:
    """Simulate some seconds of one cluster and spool its frames; a spool that refuses costs them, counted."""
    measured = [sender.cluster.advance(second) for second in seconds]
    frames: list[bytes] = []
    for host, contents in sender.contents.batch(measured).items():
        for content in contents:
            sender.definitions.keep(content)
        frames += frames_of(sender.spec, host, contents, measured)
    try:
        sender.spool.append_many(frames)
    except SecondsightError as error:
        sender.counts.add("ticks_missed", len(frames))
        logger.warning("%s: samples are lost: %s", sender.spec.name, error)


def _end(config: FleetConfig, sender: _Sender, thread: threading.Thread) -> None:
    thread.join(config.stop_seconds)
    try:
        if not thread.is_alive():
            sender.shipper.drain(config.stop_seconds)
    finally:
        sender.shipper.close()
        sender.spool.close()
