"""Turn a change of who had a GPU into its events stamped again: those that wait to be written, and those in the store.

Events of jobs state themselves whose they are; only those of other kinds follow the allocation of their GPU.
"""

from collections.abc import Iterator
from typing import Any

from secondsight.contracts import Store
from secondsight.model import EntityKind
from secondsight.process.enrich import FIELDS, Fact
from secondsight.process.land import Row, attribution_row
from secondsight.process.world import World

TABLE = "events"
_TIMES = ("event_time", "end_time", "ingest_time")


def restamp_events(world: World, fact: Fact, start_ms: int, end_ms: int) -> None:
    """Have the events of a fact's GPU in a range of time written with the attribution known now.

    Raises:
        Retryable: The store is busy or away; doing it again is right.
    """
    tenant, cluster, entity, _ = fact.subject
    waiting = [
        row
        for row in world.writer.landing.waiting(TABLE)
        if (row["tenant_id"], row["cluster_id"], row["entity"]) == (tenant, cluster, entity)
        and start_ms <= row["event_time"] < end_ms
        and row["kind"] != EntityKind.PROCESS_JOB.value
    ]
    for row in (*_stored(world.store, fact, start_ms, end_ms), *waiting):
        now = world.attribution_at(tenant, cluster, (entity, row["part"]), row["event_time"])
        if now != tuple(row[name] for name in FIELDS):
            world.writer.landing.add(TABLE, row | attribution_row(now), row["event_version"])


def _stored(store: Store, fact: Fact, start_ms: int, end_ms: int) -> Iterator[Row]:
    tenant, cluster, entity, _ = fact.subject
    times = ", ".join(f"toUnixTimestamp64Milli({name}) AS {name}" for name in _TIMES if name != "end_time")
    end = "if(isNull(end_time), NULL, toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end_time"
    found = store.query(
        f"SELECT * REPLACE ({times}, {end}) FROM "  # noqa: S608 - names of the code
        "(SELECT * FROM events FINAL WHERE tenant_id = {tenant:String} AND cluster_id = {cluster:String} "
        "AND event_time >= fromUnixTimestamp64Milli({start:Int64}, 'UTC') "
        "AND event_time < fromUnixTimestamp64Milli({end:Int64}, 'UTC') "
        "AND entity = {entity:String} AND kind != {jobs:String})",
        {
            "tenant": tenant,
            "cluster": cluster,
            "entity": entity,
            "start": start_ms,
            "end": end_ms,
            "jobs": EntityKind.PROCESS_JOB.value,
        },
    )
    for row in found.to_pylist():
        attributes: Any = row["attributes"]
        yield row | {"attributes": dict(attributes)}
