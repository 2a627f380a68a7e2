"""Give series their labels, and match them: our own names, or those of dcgm-exporter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from secondsight.model import EntityKind
from secondsight.promql.matrix import NAME, Labels
from secondsight.promql.names import Reading
from secondsight.promql.patterns import matches, whole
from secondsight.query.request import Group

OWNERS = {"job_id": Group.JOB, "workload_id": Group.WORKLOAD, "team": Group.TEAM, "model_id": Group.MODEL}
"""Labels that a series has only where an expression names them: they change while it goes on."""
_ANSWERED = {"jobId": "job_id", "workloadId": "workload_id", "ownerTeam": "team", "modelId": "model_id"}

Key = tuple[str, str, str, str]
"""Tenant, cluster, host, entity."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label; the empty text stands for its absence.

    Attributes:
        pattern: See `patterns.whole`; "" where the value is meant.
    """

    name: str
    operator: str
    value: str
    pattern: str = ""

    def admitted(self, many: Sequence[Mapping[str, str]]) -> list[bool]:
        """Tell of the labels of each series whether they fulfil it."""
        values = [labels.get(self.name, "") for labels in many]
        if not self.pattern:
            return [(value == self.value) == (self.operator == "=") for value in values]
        fits = matches(self.pattern, values)
        return [fits[value] == (self.operator == "=~") for value in values]


def matcher(name: str, operator: str, value: str) -> Matcher:
    """Return a condition.

    Raises:
        Rejected(promql_parse): Its pattern is none.
    """
    if operator in ("=", "!="):
        return Matcher(name, operator, value)
    return Matcher(name, operator, value, whole(value))


class Places:
    """What is known of entities: rows of the inventory, the newest of each.

    Args:
        rows: As `Inventory.expected` gives them.
    """

    def __init__(self, rows: Any, kind: EntityKind) -> None:
        self._kind = kind
        names = ["tenant_id", "region", "cluster_id", "rack", "host_id", "entity", "part", "gpu_model", "gpu_index"]
        columns = [rows[name].cast(pa.string()).to_pylist() for name in names]
        found: dict[tuple[Key, str], dict[str, str]] = {}
        stretches: dict[tuple[Key, str], list[tuple[int, int]]] = {}
        times = zip(*(rows[name].to_pylist() for name in ("last_seen_ms", "start_ms", "end_ms")), strict=True)
        for (_, start_ms, end_ms), values in sorted(zip(times, zip(*columns, strict=True), strict=True)):
            fact = dict(zip(names, values, strict=True))
            found[_key(fact), fact["part"]] = fact
            stretches.setdefault((_key(fact), fact["part"]), []).append((start_ms, end_ms))
        self._facts = {key: fact for (key, _), fact in found.items()}
        self._stretches = stretches
        self.parts = list(found)

    def live(self, from_ms: int, to_ms: int) -> list[tuple[Key, str]]:
        """Return the entities and parts that were to report at some time of a range."""
        return [
            part
            for part, stretches in self._stretches.items()
            if any(start_ms < to_ms and end_ms > from_ms for start_ms, end_ms in stretches)
        ]

    def labels(self, key: Key, part: str, reading: Reading) -> Labels:
        """Return the labels of a series; those without a value are left out."""
        fact = self._facts.get(key, {})
        tenant, cluster, host, entity = key
        index, model = fact.get("gpu_index") or "", fact.get("gpu_model") or ""
        if reading.is_dcgm:
            device = f"nvidia{index}" if index else ""
            own = {"UUID": entity, "gpu": index, "device": device, "modelName": model, "Hostname": host}
            own |= {"instance": host, "cluster": cluster, "tenant": tenant}
        else:
            own = {"tenant": tenant, "region": fact.get("region") or "", "cluster": cluster}
            own |= {"rack": fact.get("rack") or "", "host": host}
            own |= self._entity(entity, host) | {"gpu_index": index, "gpu_model": model}
        pairs = ((reading.part_names.get(name, name), value) for name, value in part_pairs(part))
        return {name: value for name, value in ({NAME: reading.name} | own | dict(pairs)).items() if value}

    def _entity(self, entity: str, host: str) -> Labels:
        if self._kind is EntityKind.GPU:
            return {"gpu": entity}
        if self._kind is EntityKind.INFERENCE:
            return {"entity": entity, "model_name": entity.partition("/")[2].partition("#")[0]}
        return {} if entity == host else {"entity": entity}


def part_pairs(part: str) -> list[tuple[str, str]]:
    """Return the labels that a part is made of."""
    pieces = (piece.partition("=") for piece in part.split(",") if piece)
    return [(name, unquote(value)) if mark else ("part", name) for name, mark, value in pieces]


def key_of(labels: Mapping[str, str]) -> Key:
    """Return whose series this is, from labels by their names in answers."""
    entity = labels.get("gpuId") or labels.get("entityId", "")
    return labels.get("tenantId", ""), labels.get("clusterId", ""), labels.get("hostId", ""), entity


def owner_labels(labels: Mapping[str, str]) -> Labels:
    """Return whom a series is allocated to, from labels by their names in answers."""
    return {ours: labels[theirs] for theirs, ours in _ANSWERED.items() if labels.get(theirs)}


def admitted(matchers: Sequence[Matcher], many: Sequence[Mapping[str, str]]) -> list[bool]:
    """Tell of the labels of each series whether they fulfil all conditions."""
    found = [True] * len(many)
    for one in matchers:
        found = [before and fits for before, fits in zip(found, one.admitted(many), strict=True)]
    return found


def _key(fact: Mapping[str, str]) -> Key:
    return fact["tenant_id"], fact["cluster_id"], fact["host_id"], fact["entity"]
