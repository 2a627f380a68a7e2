"""Turn changes of owners into events stamped again: those that wait to be written, and those in the store.

Events of jobs state themselves whose they are; those of other kinds follow the allocations.
"""

from collections.abc import Iterator, Mapping

from secondsight.model import EntityKind
from secondsight.process.enrich import FIELDS
from secondsight.process.groups import Change
from secondsight.process.land import Row, attribution_row
from secondsight.process.owners import Root, root_column, root_of
from secondsight.process.world import World

TABLE = "events"
_TIMES = ("event_time", "end_time", "ingest_time")
_OWN = (EntityKind.TRAINING, EntityKind.INFERENCE)
_ROOT = (
    "multiIf("
    + ", ".join(f"kind = '{kind.value}', {root_column(kind)}" for kind in _OWN)
    + f", {root_column(EntityKind.GPU)})"
)


def restamp_events(world: World, place: tuple[str, str], reach_ms: Mapping[Root, Change]) -> None:
    """Have the events of some roots of one (tenant, cluster), each in its range of time, written as is known now.

    Raises:
        Retryable: The store is busy or away; doing it again is right.
    """
    for row in (*_stored(world, place, reach_ms), *_waiting(world, place, reach_ms)):
        kind, subject = EntityKind(row["kind"]), (*place, row["entity"], row["part"])
        now = world.attribution_at(kind, row["host_id"], subject, row["event_time"])
        if now != tuple(row[name] for name in FIELDS):
            world.writer.landing.add(TABLE, row | attribution_row(now), row["event_version"])


def _waiting(world: World, place: tuple[str, str], reach_ms: Mapping[Root, Change]) -> Iterator[Row]:
    for row in world.writer.landing.waiting(TABLE):
        kind = EntityKind(row["kind"])
        if kind is not EntityKind.PROCESS_JOB and (row["tenant_id"], row["cluster_id"]) == place:
            root = root_of(kind, row["host_id"], (*place, row["entity"], row["part"]))
            if root in reach_ms and reach_ms[root][0] <= row["event_time"] < reach_ms[root][1]:
                yield row


def _stored(world: World, place: tuple[str, str], reach_ms: Mapping[Root, Change]) -> Iterator[Row]:
    times = ", ".join(f"toUnixTimestamp64Milli({name}) AS {name}" for name in _TIMES if name != "end_time")
    end = "if(isNull(end_time), NULL, toUnixTimestamp64Milli(assumeNotNull(end_time))) AS end_time"
    found = world.store.query(
        f"SELECT * REPLACE ({times}, {end}) FROM "  # noqa: S608 - names of the code
        f"(SELECT *, {_ROOT} AS root FROM events FINAL WHERE tenant_id = {{tenant:String}} "
        "AND cluster_id = {cluster:String} "
        "AND event_time >= fromUnixTimestamp64Milli({start:Int64}, 'UTC') "
        "AND event_time < fromUnixTimestamp64Milli({end:Int64}, 'UTC') "
        "AND root IN {roots:Array(String)} AND kind != {jobs:String})",
        {
            "tenant": place[0],
            "cluster": place[1],
            "roots": sorted(reach_ms),
            "start": min(start_ms for start_ms, _ in reach_ms.values()),
            "end": max(end_ms for _, end_ms in reach_ms.values()),
            "jobs": EntityKind.PROCESS_JOB.value,
        },
    )
    for row in found.to_pylist():
        attributes, (start_ms, end_ms) = row["attributes"], reach_ms[row.pop("root")]
        if start_ms <= row["event_time"] < end_ms:
            yield row | {"attributes": dict(attributes)}
