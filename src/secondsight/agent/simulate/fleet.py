"""Drive simulated hosts against a gateway: the product's own frames, spool and shipper, one lane for each cluster.

A fleet that is new may be given a past. Then each cluster has two lanes, as an agent with a backlog has: the past goes
in order, newest samples overtake it in frames marked live, and when the past has been delivered the live lane is the
only one and no longer marked. Counters go on over the end of a past of an hour at most, and over a stop. What hosts
collect while the network is cut is held back, and then goes the same way.
"""

import logging
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from secondsight.agent.client.offset import ClockOffset
from secondsight.agent.client.transport import GatewayTransport
from secondsight.agent.counts import Counts
from secondsight.agent.ship.aside import Aside
from secondsight.agent.ship.shipper import ShipConfig, ShipParts, Shipper
from secondsight.agent.simulate.cluster import SETTLE_SECONDS, ClusterSpec, Second, SimulatedCluster, boot_id, host_name
from secondsight.agent.simulate.config import FleetConfig
from secondsight.agent.simulate.contents import HostContents
from secondsight.agent.simulate.incidents import NETWORK_PARTITION
from secondsight.agent.spool.bounds import SpoolBounds
from secondsight.agent.spool.classes import Spools
from secondsight.agent.write.definitions import KeptDefinitions
from secondsight.catalog.load import load_catalog
from secondsight.clock import Clock
from secondsight.errors import SecondsightError
from secondsight.model import Priority
from secondsight.wire.content import Content
from secondsight.wire.frame import Stamp, encode

logger = logging.getLogger(__name__)

MIB = 1 << 20
LIVE, PAST, HELD = "live", "past", "held"
MEASURED_UNCERTAINTY_MS = 5
PAST_BATCH_SECONDS = 15
COARSE_INTERVAL_SECONDS = 30
COARSE_BATCH_SECONDS = 600
FINE_PAST_SECONDS = 3600
"""Of a longer past, all but the last hour is sampled every 30 s."""
MISSED_SECONDS = 60
SHIP = ShipConfig(batch_seconds=0.2, backlog_seconds=float("inf"))
"""The fleet has lanes of its own: its shippers need none."""
PAST_SPOOL_RECORDS = 2000
"""Records that may wait before the past pauses, so that it never fills the spool."""


@dataclass(slots=True)
class _Outlet:
    """Frames on their way to the gateway.

    Attributes:
        open: Set from when they may leave.
    """

    spools: Spools
    definitions: KeptDefinitions
    shipper: Shipper
    counts: Counts
    open: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class _Lane:
    """One cluster and its frames.

    Attributes:
        held: Takes the frames of hosts that cannot be reached; None where no incident cuts any off.
        cut_off: Hosts with frames in `held`.
    """

    spec: ClusterSpec
    cluster: SimulatedCluster
    contents: HostContents
    outlet: _Outlet
    held: _Outlet | None = None
    cut_off: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Fleet:
    """What the threads of a run share.

    Attributes:
        past_done: Set once nothing older than the live lane is on its way.
    """

    config: FleetConfig
    clock: Clock
    stop: threading.Event
    past_done: threading.Event = field(default_factory=threading.Event)


def run_fleet(config: FleetConfig, clock: Clock, stop: threading.Event) -> None:
    """Simulate until `stop` is set, then deliver what is there, for at most `config.stop_seconds`.

    Raises:
        Retryable: A spool cannot be opened.
        Permanent: Another fleet has the spool.
    """
    fleet = _Fleet(config, clock, stop)
    now = clock.now_ms() // 1000
    is_new = not any((config.spool_dir / cluster.name).exists() for cluster in config.clusters)
    before = config.history_seconds if is_new and config.history_seconds <= FINE_PAST_SECONDS else 0
    lanes = [_lane(config, position, LIVE, now, clock, before) for position in range(len(config.clusters))]
    past = []
    if is_new and config.history_seconds:
        start = now - config.history_seconds
        past = [_lane(config, position, PAST, start, clock) for position in range(len(config.clusters))]
    outlets = [outlet for lane in (*lanes, *past) for outlet in (lane.outlet, lane.held) if outlet is not None]
    threads = [threading.Thread(target=_ship, args=(outlet, stop), daemon=True) for outlet in outlets]
    threads.append(threading.Thread(target=_relive, args=(fleet, past, now), daemon=True))
    for thread in threads:
        thread.start()
    hosts = sum(lane.spec.hosts for lane in lanes)
    logger.info("fleet of %d hosts starts, %d GPUs each", hosts, config.gpus_per_host)
    try:
        _live(fleet, lanes, now)
    finally:
        stop.set()
        for thread in threads:
            thread.join(config.stop_seconds)
        for outlet, thread in zip(outlets, threads[:-1], strict=True):
            _end(config, outlet, thread)
        for lane in lanes:
            _keep_counters(_counters_path(config, lane.spec), lane.cluster)


def frames_of(
    spec: ClusterSpec, host: int, contents: Sequence[Content], seconds: Sequence[Second], cadence: "Cadence"
) -> list[bytes]:
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
        interval_ms=cadence.interval_seconds * 1000,
        boot_id=boot_id(spec, host),
        clock_offset_ms=offset_ms,
        clock_uncertainty_ms=MEASURED_UNCERTAINTY_MS,
        live=cadence.live,
    )
    return [encode(stamp, content) for content in contents]


@dataclass(frozen=True, slots=True)
class Cadence:
    """How samples of a batch lie: one every `interval_seconds`, in the live lane or in order."""

    interval_seconds: int = 1
    live: bool = False


def _lane(config: FleetConfig, position: int, name: str, second: int, clock: Clock, before_seconds: int = 0) -> _Lane:
    """Return a lane; its cluster goes on where its past of `before_seconds` ends, and where an earlier run ended."""
    spec = config.spec(position, is_past=name == PAST)
    cluster = SimulatedCluster(spec, second, SETTLE_SECONDS + before_seconds)
    if name == LIVE:
        _take_counters(_counters_path(config, spec), cluster)
    lane = _Lane(spec, cluster, HostContents(spec, load_catalog()), _outlet(config, position, name, clock))
    lane.outlet.open.set()
    if any(incident.name == NETWORK_PARTITION for incident in spec.incidents):
        lane.held = _outlet(config, position, HELD, clock)
        lane.cut_off.update(range(spec.hosts) if lane.held.spools.records else ())
    return lane


def _counters_path(config: FleetConfig, spec: ClusterSpec) -> Path:
    return config.spool_dir / spec.name / "counters.npz"


def _keep_counters(path: Path, cluster: SimulatedCluster) -> None:
    counted: dict[str, Any] = cluster.counters()
    written = path.with_suffix(".new.npz")
    np.savez(written, **counted)
    written.replace(path)


def _take_counters(path: Path, cluster: SimulatedCluster) -> None:
    """Let a cluster count on from a file; one that cannot be read is as none, and counting begins anew."""
    if not path.exists():
        return
    try:
        with path.open("rb") as file, np.load(file) as kept:
            cluster.count_on(kept)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        logger.warning("%s cannot be read, counters begin anew: %s", path, error)


def _outlet(config: FleetConfig, position: int, name: str, clock: Clock) -> _Outlet:
    cluster = config.clusters[position]
    folder = config.spool_dir / cluster.name / name
    counts, first_host = Counts(), host_name(config.spec(position), 0)
    spools = Spools(folder, SpoolBounds(config.spool_mib * MIB), clock, counts, collector_id=first_host)
    definitions = KeptDefinitions(folder / "definitions", clock, 1024 + 8 * cluster.hosts)
    parts = ShipParts(
        spools=spools,
        transport=GatewayTransport(config.gateway, cluster.token_file, clock),
        definitions=definitions.known,
        aside=Aside(folder / "refused", 4 * MIB, clock),
        offset=ClockOffset(),
        counts=counts,
        random=random.SystemRandom().random,
        collector_id=first_host,
        host_id=first_host,
    )
    return _Outlet(spools, definitions, Shipper(parts, clock, SHIP), counts)


def _ship(outlet: _Outlet, stop: threading.Event) -> None:
    """Ship until `stop` is set, from when the outlet opens."""
    while not outlet.open.wait(0.2) and not stop.is_set():
        pass
    outlet.shipper.run(stop)


def _live(fleet: _Fleet, lanes: Sequence[_Lane], second: int) -> None:
    """Produce batch after batch in step with the clock; time that this machine missed stays a gap."""
    size = fleet.config.batch_seconds
    while not fleet.stop.wait(second + size - fleet.clock.now_ms() / 1000):
        cadence = Cadence(live=not fleet.past_done.is_set())
        for lane in lanes:
            _produce(lane, range(second, second + size), cadence)
        second += size
        behind = fleet.clock.now_ms() // 1000 - second
        if behind > MISSED_SECONDS:
            second += behind
            logger.warning("this machine is too slow for the fleet: %d s are missing", behind)


def _relive(fleet: _Fleet, lanes: Sequence[_Lane], end: int) -> None:
    """Produce the past up to `end`, and wait until it is delivered."""
    second = end - fleet.config.history_seconds if lanes else end
    began, said = second, 0
    while second < end and not fleet.stop.is_set():
        coarse = end - second > FINE_PAST_SECONDS
        count = min(COARSE_BATCH_SECONDS if coarse else PAST_BATCH_SECONDS, end - second)
        for lane in lanes:
            _produce(lane, range(second, second + count), Cadence(COARSE_INTERVAL_SECONDS if coarse else 1))
        second += count
        percent = 100 * (second - began) // (end - began)
        if percent // 10 > said // 10:
            said = percent
            logger.info("history: %d %% of %d s", percent, end - began)
        _wait_for_room(fleet, lanes, PAST_SPOOL_RECORDS)
        fleet.stop.wait(count / fleet.config.speed)
    _wait_for_room(fleet, lanes, 0)
    if not fleet.stop.is_set():
        fleet.past_done.set()


def _wait_for_room(fleet: _Fleet, lanes: Sequence[_Lane], records: int) -> None:
    while any(lane.outlet.spools.records > records for lane in lanes) and not fleet.stop.wait(0.05):
        pass


def _produce(lane: _Lane, seconds: range, cadence: Cadence) -> None:
    """Simulate some seconds of one cluster and spool its frames."""
    measured = [lane.cluster.advance(second) for second in seconds][
        cadence.interval_seconds - 1 :: cadence.interval_seconds
    ]
    for _, some in groupby(measured, lambda second: (*second.causes.reporting, *second.causes.reachable)):
        _spool(lane, list(some), cadence)


def _spool(lane: _Lane, measured: list[Second], cadence: Cadence) -> None:
    """Spool the frames of seconds that agree on who reports and who can be reached."""
    reachable = measured[0].causes.reachable
    if lane.held is not None and lane.cut_off and reachable.all():
        _let_go(lane, lane.held)
    frames: list[bytes] = []
    held: list[bytes] = []
    for host, contents in lane.contents.batch(measured).items():
        outlet, into = (lane.outlet, frames) if reachable[host] else (lane.held or lane.outlet, held)
        for content in contents:
            outlet.definitions.keep(content)
        overtakes = reachable[host] and host in lane.cut_off
        into += frames_of(lane.spec, host, contents, measured, replace(cadence, live=cadence.live or overtakes))
    _append(lane.spec, lane.outlet, frames)
    if lane.held is not None and held:
        lane.cut_off.update(np.flatnonzero(~reachable).tolist())
        _append(lane.spec, lane.held, held)


def _let_go(lane: _Lane, held: _Outlet) -> None:
    """Let what was held back leave, and note when all of it has left."""
    held.open.set()
    if not held.spools.records:
        lane.cut_off.clear()


def _append(spec: ClusterSpec, outlet: _Outlet, frames: list[bytes]) -> None:
    """Spool frames; a spool that refuses costs them, counted."""
    try:
        outlet.spools.append({Priority.P0: frames})
    except SecondsightError as error:
        outlet.counts.add("ticks_missed", len(frames))
        logger.warning("%s: samples are lost: %s", spec.name, error)


def _end(config: FleetConfig, outlet: _Outlet, thread: threading.Thread) -> None:
    try:
        if not thread.is_alive() and outlet.open.is_set():
            outlet.shipper.drain(config.stop_seconds)
    finally:
        outlet.shipper.close()
        outlet.spools.close()
