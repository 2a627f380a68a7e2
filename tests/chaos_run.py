"""One chaos run: ship a fleet's story through a platform under blows, then compare all that it holds."""

import gc
import http.client
import random
import re
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import clickhouse_server
import kafka_broker
from chaos_broken import launcher
from chaos_compare import Differences, compare, counts_of, counts_wanted
from chaos_fleet import CLOSING_SECONDS, Fleet, Story
from chaos_foreign import CLUSTER, Foreigners
from chaos_frames import Parcel, ship
from chaos_oracle import Expected, expect, sizes
from chaos_rig import FRAMES, PATIENCE_SECONDS, Blows, Couriers, Cuttable, schedule, small_disk
from chaos_rows import WINDOW_MS
from flow_tables import Tables
from secondsight.contracts import Store
from secondsight.process.balance import differences
from secondsight.store.chdb import ChdbStore
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.clickhouse.store import ClickHouseStore
from up_rig import Platform, request

MARGIN_SECONDS = 90
SPOILED_AFTERWARDS = 20
_FLEET = rf"SELECT * FROM \1 FINAL WHERE cluster_id != '{CLUSTER}'"
LOG_DISK_MIB = 512


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is; `blows` says how many of what."""

    hosts: int
    gpus: int
    seconds: int
    pace_seconds: float
    blows: dict[str, int]
    patient_share: float = 0.0
    kafka: bool = False
    clickhouse: bool = False
    """Keep the tables in a server, which may be killed as well."""
    foreign: bool = False
    """Have Prometheus and OpenTelemetry write beside the fleet."""
    small_disk: bool = False
    waits_for_the_last: bool = False
    """Wait until the windows that only silence closes are rolled up too."""
    patience_seconds: float = 60.0
    """How long counts that differ may stand still, and tables differ after that, before it is a failure."""
    fault: str = ""
    """One of `chaos_broken.FAULTS`, built into the product."""


def run(folder: Path, seed: int, size: Size) -> dict[str, Any]:
    """Run, and return what was done; raise an AssertionError that says how to do it again.

    Raises:
        AssertionError: Something that was acknowledged is not as it must be.
    """
    blows = schedule(seed, size.blows, size.patient_share)
    figures: dict[str, Any] = {"seed": seed}
    gc.disable()  # millions of cells live until the end, and are in no cycles
    try:
        _run(folder, seed, size, blows, figures)
    except AssertionError as error:
        told = "\n".join(f"  {blow}" for blow in blows)
        raise AssertionError(f"CHAOS_SEED={seed} repeats this: {figures}\nschedule:\n{told}\n{error}") from error
    finally:
        gc.enable()
    return figures


def _run(folder: Path, seed: int, size: Size, blows: list[Any], figures: dict[str, Any]) -> None:
    start = int(time.time()) // 30 * 30 - size.seconds - CLOSING_SECONDS - MARGIN_SECONDS
    shipment = ship(Fleet(Story(size.hosts, size.gpus, size.seconds, start, seed)))
    figures |= shipment.counts | {"bodies": len(shipment), "ticks": shipment.ticks}
    with ExitStack() as stack:
        servers = _servers(folder, size, stack)
        options = ["--listen", "127.0.0.1:0", "--simulate", "0", "--no-local-agent"]
        options += ["--kafka", servers.broker.address] if servers.broker else []
        options += ["--clickhouse", servers.server.url] if servers.server else []
        running = Platform(folder / "data", *options)
        if size.fault:
            running.command = [str(launcher(folder, size.fault)), "-m", "secondsight"]
        stack.callback(running.end)
        running.start()
        proxy = Cuttable(lambda: running.address)
        stack.callback(proxy.close)
        couriers = Couriers(shipment, lambda: proxy.port, lambda: running.token("collector"), size.pace_seconds)
        stack.callback(couriers.stop)
        tables = Tables(running, servers.store)
        stack.callback(tables.close)
        dealer = Blows(running, proxy, servers.broker, servers.server, servers.disk, lambda: progress_of(tables))
        foreigners = Foreigners(shipment.fleet.story, proxy, size.pace_seconds)
        stack.callback(foreigners.stop)
        couriers.start()
        if size.foreign:
            foreigners.start(running)
        for blow in blows:
            _wait_for(couriers, blow.share)
            dealer.deal(blow)
        expected = expect(shipment)
        couriers.finish()
        figures |= {"answers": dict(couriers.answers), "blows": dict(dealer.dealt), **sizes(expected)}
        open_yet = {} if size.waits_for_the_last else _last_windows(expected, shipment.fleet.story)
        found = _settled(tables, expected, open_yet, size.patience_seconds)
        figures["compared"] = sum(found.compared.values())
        assert not found, found.words()
        if size.foreign:
            figures["foreign values"] = _check_foreign(tables, foreigners, size.patience_seconds)
        _check_gaps(running, expected, shipment.fleet.story)
        _check_refusals(running, couriers, seed)
        assert running.stop() == 0, running.words()
        with closing(servers.store or ChdbStore(folder / "data" / "hot")) as held:
            _check_balance(held, start, size.seconds)


class _Servers(NamedTuple):
    """What a platform runs on besides its folder."""

    broker: kafka_broker.Broker | None
    server: clickhouse_server.Server | None
    store: ClickHouseStore | None
    disk: Path | None


def _servers(folder: Path, size: Size, stack: ExitStack) -> _Servers:
    """Start what a run wants, until the stack is unwound."""
    broker, server, store, disk = None, None, None, None
    if size.kafka:
        (folder / "broker").mkdir()
        broker = stack.enter_context(kafka_broker.broker(folder / "broker"))
    if size.clickhouse:
        (folder / "store").mkdir()
        server = stack.enter_context(clickhouse_server.server(folder / "store"))
        store = ClickHouseStore(ClickHouseConfig(server.url))
        stack.callback(store.close)
    if size.small_disk:
        disk = stack.enter_context(small_disk(folder / "data" / "log", LOG_DISK_MIB))
    return _Servers(broker, server, store, disk)


def progress_of(tables: Tables) -> int:
    """Return what grows whenever the processor writes how far it is."""
    return int(tables.rows("SELECT max(version) AS version FROM progress")[0]["version"])


def _wait_for(couriers: Couriers, share: float) -> None:
    """Wait until so much is delivered."""
    reached, since = -1, time.monotonic()
    while couriers.share < share:
        if couriers.delivered != reached:
            reached, since = couriers.delivered, time.monotonic()
        assert not couriers.faults, couriers.faults[:5]
        assert time.monotonic() - since < PATIENCE_SECONDS, f"nothing is taken any more: {couriers.answers}"
        time.sleep(0.02)


def _last_windows(expected: Expected, story: Story) -> dict[str, int]:
    """Return the window of the last word of each collector: nothing but silence closes it."""
    last_ms = (story.end + CLOSING_SECONDS) * 1000 // WINDOW_MS * WINDOW_MS
    collectors = {key.collector_id for rows in expected.raw.values() for key in rows}
    return dict.fromkeys(collectors, last_ms)


def _settled(tables: Tables, expected: Expected, open_yet: dict[str, int], patience_seconds: float) -> Differences:
    """Wait until the counts are as they must be, or do not move any more; then compare, some times if need be."""
    wanted, reached, since = counts_wanted(expected, open_yet), None, time.monotonic()

    def query(sql: str) -> Any:
        """Read what is of the fleet alone."""
        return tables.table(re.sub(r"FROM (\w+) FINAL", rf"FROM ({_FLEET})", sql))

    while (counts := counts_of(query)) != wanted and time.monotonic() - since < patience_seconds:
        moved = (counts, progress_of(tables))  # a replay writes again what is there: counts alone stand still
        if moved != reached:
            reached, since = moved, time.monotonic()
        time.sleep(0.5)
    found = compare(query, expected, open_yet)
    end = time.monotonic() + patience_seconds
    while found and time.monotonic() < end:
        time.sleep(3)
        found = compare(query, expected, open_yet)
    return found


def _check_foreign(tables: Tables, foreigners: Foreigners, patience_seconds: float) -> int:
    """What foreign senders were acknowledged is in the tables, once; return how many values that is."""
    foreigners.finish()
    end = time.monotonic() + patience_seconds
    while (wrong := foreigners.differences(tables.table)) and time.monotonic() < end:
        time.sleep(3)
    assert not wrong, f"{len(wrong)} values of foreign senders: {wrong[:5]}"
    return len(foreigners.wanted)


def _check_gaps(running: Platform, expected: Expected, story: Story) -> None:
    """The gaps of GPUs and why they are there are those of the story."""
    span = {"from": story.start * 1000, "to": story.end * 1000}
    found, cursor = {}, ""
    while True:
        more = {"cursor": cursor} if cursor else {}
        page = running.get("/v1/telemetry/gaps", kind="gpu", limit=1000, **span, **more)
        for gap in page["gaps"]:
            start_ms, end_ms = (gap[name] and _epoch_ms(gap[name]) for name in ("startTime", "endTime"))
            found[gap["hostId"], gap["entityId"], start_ms, end_ms] = gap["reason"]
        cursor = page["nextCursor"]
        if not cursor:
            break
    inside = {gap: why for gap, why in found.items() if gap[3] is not None and gap[2] > story.start * 1000}
    wrong = {gap: (inside.get(gap), expected.gaps.get(gap)) for gap in inside.keys() | expected.gaps.keys()}
    wrong = {gap: pair for gap, pair in wrong.items() if pair[0] != pair[1]}
    assert not wrong, f"gaps (found, wanted): {dict(list(wrong.items())[:8])}"


def _epoch_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


def _check_refusals(running: Platform, couriers: Couriers, seed: int) -> None:
    """Bodies that are refused are counted, each once."""
    chance = random.Random(f"spoiled {seed}")
    parcels = [one for some in couriers.shipment.parcels.values() for one in some if one.frames]
    before, refused = _refused_requests(running), 0
    for _ in range(SPOILED_AFTERWARDS):
        parcel = chance.choice(parcels)
        body = Parcel(parcel.host, parcel.frames, 0.0).bytes()
        place = chance.randrange(len(body))
        body = body[:place] + bytes([body[place] ^ 0x40]) + body[place + 1 :]
        status, answer = request(running.address, "POST", "/v1/frames", running.token("collector"), body, **FRAMES)
        assert status in (400, 413, 422), (status, answer)
        refused += 1
    assert _refused_requests(running) - before == refused


def _refused_requests(running: Platform) -> int:
    """Return how many requests the gateway refused since it runs."""
    config = (running.data / "run" / "config.toml").read_text()
    address = urlsplit(re.search(r'gateway = "(http[^"]+)"', config)[1])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=20)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    lines = [line for line in text.splitlines() if "gateway_refused_requests_total{" in line]
    return sum(round(float(line.rpartition(" ")[2])) for line in lines)


def _check_balance(store: Store, start: int, seconds: int) -> None:
    """The ledger and the tables agree of all windows that are written off."""
    found = differences(store, start * 1000, (start + seconds + 60) * 1000)
    assert not found, found[:5]
