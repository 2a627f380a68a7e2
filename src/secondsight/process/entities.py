"""Turn the entity tables of frames into time-ranged rows of `entities`: a card keeps its history when it moves."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from secondsight.catalog.secondary import is_secondary
from secondsight.model import EntityKind
from secondsight.process.land import Row
from secondsight.wire.content import Entity, EntityTable, Header
from secondsight.wire.envelope import Envelope
from secondsight.wire.header import HeadView

REFRESH_MS = 60_000
"""How often `last_seen` of an entity is written again while it is seen."""
Key = tuple[str, str, str, str, str, str, str]
"""Tenant, cluster, host, kind, entity, part, collector."""
TENANT, CLUSTER, HOST, KIND, ENTITY, PART, COLLECTOR = range(7)


@dataclass(slots=True)
class Stay:
    """An entity at a place from one time on."""

    row: Row
    from_ms: int
    last_ms: int
    to_ms: int | None = None


@dataclass(slots=True)
class _Sighting:
    """When the entities of one table were seen by one collector."""

    keys: tuple[Key, ...]
    first_ms: int
    last_ms: int
    written_ms: int


class EntityBook:
    """All entities seen lately, and where each GPU is now."""

    def __init__(self) -> None:
        self._stays: dict[Key, Stay] = {}
        self._sightings: dict[tuple[str, str, str, bytes], _Sighting] = {}
        self._home: dict[tuple[str, str, str, str], Key] = {}
        self._dirty: dict[tuple[Key, int], Row] = {}
        self._arrived: set[str] = set()

    def restore(self, rows: Iterable[dict[str, Any]]) -> None:
        """Take over open stays from the store: rows of `entities` with times in ms."""
        for row in rows:
            key: Key = tuple(row[name] for name in _KEY_COLUMNS)
            known = self._stays.get(key)
            if known is None or known.from_ms < row["from_time"]:
                self._stays[key] = Stay(row, row["from_time"], row["last_seen"])
                self._settle_home(key)
            elif known.from_ms == row["from_time"]:
                known.last_ms = max(known.last_ms, row["last_seen"])

    def start_over(self, rows: Iterable[dict[str, Any]]) -> None:
        """Know what the store has and nothing else; all that changed here is written."""
        self._stays.clear()
        self._sightings.clear()
        self._home.clear()
        self.restore(rows)

    def release(self, collectors: Collection[tuple[str, str, str]]) -> None:
        """Forget which tables of entities collectors (tenant, cluster, id) sent; the entities stay."""
        self._sightings = {name: seen for name, seen in self._sightings.items() if name[:3] not in collectors}

    def arrived(self) -> set[str]:
        """Return the GPUs that were seen at a place for the first time since the last call."""
        arrived, self._arrived = self._arrived, set()
        return arrived

    def see(self, envelope: Envelope, header: Header | HeadView, table: EntityTable, seen: tuple[int, int]) -> None:
        """Take note of a frame whose rows lie between two event times."""
        first_ms, last_ms = seen
        name = (envelope.tenant_id, envelope.cluster_id, header.collector_id, header.entities_hash)
        known = self._sightings.get(name)
        if known is None:
            listed = [item for item in table.entities if not is_secondary(item.part)]
            keys = tuple(self._open(envelope, (header, table), item, seen) for item in listed)
            self._sightings[name] = _Sighting(keys, first_ms, last_ms, last_ms)
            return
        if first_ms < known.first_ms:
            known.first_ms = first_ms
            self._extend(known.keys, first_ms, last_ms)
        known.last_ms = max(known.last_ms, last_ms)
        if known.last_ms - known.written_ms >= REFRESH_MS:
            known.written_ms = known.last_ms
            self._come_back(known.keys, first_ms, last_ms)
            self._extend(known.keys, first_ms, known.last_ms)

    def take(self) -> list[Row]:
        """Return the rows that changed since `done`."""
        return list(self._dirty.values())

    def done(self) -> None:
        """Forget what was taken; it is written."""
        self._dirty.clear()

    def _open(
        self, envelope: Envelope, origin: tuple[Header | HeadView, EntityTable], item: Entity, seen: tuple[int, int]
    ) -> Key:
        header, table = origin
        key: Key = (
            envelope.tenant_id,
            envelope.cluster_id,
            table.host_id,
            header.kind.value,
            item.entity,
            item.part,
            header.collector_id,
        )
        row = {
            **dict(zip(_KEY_COLUMNS, key, strict=True)),
            "region": envelope.region,
            "rack": table.rack,
            "gpu_model": dict(item.attributes).get("gpu_model", ""),
            "attributes": dict(item.attributes),
            "interval_ms": header.interval_ms,
        }
        known = self._stays.get(key)
        if known is None or known.to_ms is not None:
            self._stays[key] = Stay(row, *seen)
            if key[KIND] == EntityKind.GPU.value:
                self._arrived.add(item.entity)
        else:
            known.row = row
        self._extend((key,), *seen)
        self._settle_home(key)
        return key

    def _extend(self, keys: Iterable[Key], first_ms: int, last_ms: int) -> None:
        for key in keys:
            stay = self._stays[key]
            if first_ms < stay.from_ms:
                self._void(key, stay)
                stay.from_ms = first_ms
            stay.last_ms = max(stay.last_ms, last_ms)
            self._write(key, stay)

    def _come_back(self, keys: Iterable[Key], first_ms: int, last_ms: int) -> None:
        """Begin a new stay of entities that are seen again after they had moved away."""
        for key in keys:
            stay = self._stays[key]
            if stay.to_ms is not None and first_ms >= stay.to_ms:
                self._stays[key] = Stay(stay.row, first_ms, last_ms)
                self._settle_home(key)

    def _settle_home(self, key: Key) -> None:
        """Close the older of two stays of one GPU on two hosts."""
        if key[KIND] != EntityKind.GPU.value:
            return
        card = (key[TENANT], key[KIND], key[ENTITY], key[PART])
        other = self._home.get(card)
        if other is None or other[HOST] == key[HOST]:
            self._home[card] = key
            return
        here, there = self._stays[key], self._stays[other]
        newer, older = (key, other) if here.from_ms >= there.from_ms else (other, key)
        self._stays[older].to_ms = max(self._stays[newer].from_ms, self._stays[older].from_ms)
        self._write(older, self._stays[older])
        self._home[card] = newer

    def _void(self, key: Key, stay: Stay) -> None:
        """Write a stay as never been: it began earlier than it was thought to."""
        self._dirty[key, stay.from_ms] = _row(stay) | {"to_time": stay.from_ms, "version": stay.last_ms + 1}

    def _write(self, key: Key, stay: Stay) -> None:
        self._dirty[key, stay.from_ms] = _row(stay)


_KEY_COLUMNS = ("tenant_id", "cluster_id", "host_id", "kind", "entity", "part", "collector_id")


def _row(stay: Stay) -> Row:
    closed = 1 if stay.to_ms is not None else 0
    return stay.row | {
        "from_time": stay.from_ms,
        "last_seen": stay.last_ms,
        "to_time": stay.to_ms,
        "version": stay.last_ms + closed,
    }
