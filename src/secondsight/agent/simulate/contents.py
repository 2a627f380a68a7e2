"""Turn seconds of a simulated cluster into frame contents, host by host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secondsight.agent.simulate.cluster import ClusterSpec, Second, Xid, gpu_uuid, host_name, rack_name, serves
from secondsight.agent.simulate.jobs import Job
from secondsight.agent.simulate.physics import Floats
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Metric
from secondsight.model import EntityKind
from secondsight.wire.content import (
    Column,
    Content,
    Entity,
    EntityTable,
    Event,
    Group,
    HistogramColumn,
    HistogramRows,
    Info,
    ScalarBlock,
    Schema,
)
from secondsight.wire.schema import make_schema

Stored = dict[str, NDArray[Any]]
FIRST_TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
NETWORK_PARTS = ("device=bond0,direction=receive", "device=bond0,direction=transmit")


@dataclass(slots=True)
class _Engine:
    """Counters of one inference engine."""

    requests: float = 0.0
    prompt_tokens: float = 0.0
    generation_tokens: float = 0.0
    buckets: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(len(FIRST_TOKEN_BOUNDS) + 1, dtype=np.uint64))
    first_token_seconds: float = 0.0


class HostContents:
    """Makes contents for every host of a cluster from the same few schemas; keeps what events need to know."""

    def __init__(self, spec: ClusterSpec, catalog: Catalog, omit: frozenset[str] = frozenset()) -> None:
        self._spec = spec
        self._omit = omit
        self._catalog = catalog
        self._schemas: dict[EntityKind, Schema] = {}
        self._tables: dict[tuple[EntityKind, int, str], EntityTable] = {}
        self._jobs: list[Job | None] = [None] * spec.hosts
        self._engines = [_Engine() for _ in range(spec.hosts)]
        self._introduced: set[int] = set()

    def batch(self, seconds: Sequence[Second]) -> dict[int, tuple[Content, ...]]:
        """Return host -> contents with one tick per second; a host that reports in none of them is left out.

        Hosts report in all seconds of a batch or in none: one that goes silent does so at the next batch.
        """
        reporting = seconds[-1].causes.reporting
        gpu = self._stored(EntityKind.GPU, [second.gpu for second in seconds])
        node = self._stored(EntityKind.NODE, [second.node for second in seconds])
        return {int(host): tuple(self._host(int(host), seconds, gpu, node)) for host in np.flatnonzero(reporting)}

    def _host(self, host: int, seconds: Sequence[Second], gpu: Stored, node: Stored) -> list[Content]:
        contents = [
            self._gpu_content(host, seconds, gpu),
            self._node_content(host, seconds, node),
            self._platform_content(host, seconds),
        ]
        events = [event for second in seconds for event in self._allocations(host, second)]
        if events:
            table = self._table(EntityKind.PROCESS_JOB, host, "", (Entity(host_name(self._spec, host)),))
            contents.append(Content(self._schema(EntityKind.PROCESS_JOB, ()), table, events=tuple(events)))
        job = seconds[-1].jobs[host]
        if serves(job) and job is not None:
            contents.append(self._inference_content(host, job, seconds))
        return contents

    def _gpu_content(self, host: int, seconds: Sequence[Second], stored: Stored) -> Content:
        spec, gpus = self._spec, self._spec.gpus_per_host
        schema = self._schema(EntityKind.GPU, tuple(stored))
        entities = tuple(
            Entity(gpu_uuid(spec, host, i), "", (("gpu_model", spec.board.name), ("index", str(i))))
            for i in range(gpus)
        )
        table = self._table(EntityKind.GPU, host, "", entities)
        mine = slice(host * gpus, (host + 1) * gpus)
        own = {name: values[:, mine] for name, values in stored.items()}
        xids = tuple(
            self._xid_event(xid, second.second) for second in seconds for xid in second.xids if xid.gpu // gpus == host
        )
        return Content(
            schema,
            table,
            scalars=dense_block(schema, own),
            events=xids,
            infos=self._introduce(host, seconds[0].second),
        )

    def _node_content(self, host: int, seconds: Sequence[Second], stored: Stored) -> Content:
        names = (*stored, "node_network_io_bytes_total")
        schema = self._schema(EntityKind.NODE, names)
        name = host_name(self._spec, host)
        table = self._table(EntityKind.NODE, host, "", (Entity(name), *(Entity(name, part) for part in NETWORK_PARTS)))
        ticks, rows = len(seconds), 1 + len(NETWORK_PARTS)
        columns: dict[str, NDArray[Any]] = {}
        present: dict[str, NDArray[np.bool_]] = {}
        for metric, values in stored.items():
            columns[metric] = np.zeros((ticks, rows), dtype=values.dtype)
            columns[metric][:, 0] = values[:, host]
            present[metric] = np.tile(np.arange(rows) == 0, (ticks, 1))
        traffic = np.zeros((ticks, rows), dtype="<u8")
        traffic[:, 1] = [second.network_receive_bytes[host] for second in seconds]
        traffic[:, 2] = [second.network_transmit_bytes[host] for second in seconds]
        columns["node_network_io_bytes_total"] = traffic
        present["node_network_io_bytes_total"] = np.tile(np.arange(rows) > 0, (ticks, 1))
        return Content(schema, table, scalars=dense_block(schema, columns, present))

    def _platform_content(self, host: int, seconds: Sequence[Second]) -> Content:
        ticks = len(seconds)
        restarted = np.array([second.causes.agent_age_seconds[host] for second in seconds], dtype=np.float64)
        of_day = np.array([second.second for second in seconds], dtype=np.float64) % 86_400
        age = np.where(restarted < 0, of_day, restarted)
        physical = {
            "agent_up": np.ones((ticks, 1)),
            "agent_cpu_seconds_total": (age * 0.006).reshape(ticks, 1),
            "agent_resident_memory_bytes": np.full((ticks, 1), 44.0 * 2**20),
            "agent_spool_bytes": np.full((ticks, 1), 65_536.0),
        }
        stored = {name: to_column(self._catalog.get(name), values) for name, values in physical.items()}
        schema = self._schema(EntityKind.PLATFORM, tuple(stored))
        table = self._table(EntityKind.PLATFORM, host, "", (Entity(host_name(self._spec, host)),))
        return Content(schema, table, scalars=dense_block(schema, stored))

    def _inference_content(self, host: int, job: Job, seconds: Sequence[Second]) -> Content:
        name = f"{host_name(self._spec, host)}:8000/{job.model_id}"
        engine, ticks = self._engines[host], len(seconds)
        rows = [self._serve(engine, host, second) for second in seconds]
        physical = {metric: np.array([row[metric] for row in rows]).reshape(ticks, 1) for metric in rows[0]}
        stored = {metric: to_column(self._catalog.get(metric), values) for metric, values in physical.items()}
        bounds = HistogramColumn("inference_time_to_first_token_seconds", "s", FIRST_TOKEN_BOUNDS)
        schema = self._schema(EntityKind.INFERENCE, tuple(stored), (bounds,))
        table = self._table(EntityKind.INFERENCE, host, name, (Entity(name),))
        histogram = HistogramRows(
            column=0,
            entity_index=np.zeros(1, dtype=np.uint32),
            tick_index=np.full(1, ticks - 1, dtype=np.uint16),
            buckets=engine.buckets.reshape(1, -1).copy(),
            sums=np.array([engine.first_token_seconds]),
            start_times_ms=np.array([job.start_seconds * 1000], dtype=np.int64),
        )
        return Content(schema, table, scalars=dense_block(schema, stored), histograms=(histogram,))

    def _serve(self, engine: _Engine, host: int, second: Second) -> dict[str, float]:
        """Advance one engine by a second: requests follow the activity of its first GPU."""
        activity = float(second.gpu["gpu_sm_active_ratio"][host * self._spec.gpus_per_host])
        requests = round(activity * 24)
        engine.requests += requests
        engine.prompt_tokens += requests * 720
        engine.generation_tokens += round(activity * 9000)
        typical = 0.04 + 0.5 * activity**3
        engine.buckets[int(np.searchsorted(FIRST_TOKEN_BOUNDS, typical))] += np.uint64(requests)
        engine.first_token_seconds += requests * typical
        return {
            "inference_requests_running": float(round(activity * 96)),
            "inference_requests_waiting": float(max(0, round((activity - 0.7) * 60))),
            "inference_kv_cache_usage_ratio": round(min(1.0, activity * 1.1), 4),
            "inference_requests_total": engine.requests,
            "inference_prompt_tokens_total": engine.prompt_tokens,
            "inference_generation_tokens_total": engine.generation_tokens,
            "inference_engine_up": 1.0,
        }

    def _allocations(self, host: int, second: Second) -> list[Event]:
        """Return the allocation facts of a second: the end of the job before, the start of the job now."""
        before, now = self._jobs[host], second.jobs[host]
        if before == now:
            return []
        self._jobs[host] = now
        facts = [(before, 2)] if before is not None else []
        facts += [(now, 1)] if now is not None else []
        return [
            self._allocation(gpu_uuid(self._spec, host, index), job, version)
            for job, version in facts
            for index in range(self._spec.gpus_per_host)
        ]

    def _allocation(self, uuid: str, job: Job, version: int) -> Event:
        return Event(
            metric="job_gpu_allocation",
            entity=uuid,
            part="",
            time_ms=job.start_seconds * 1000,
            code=0,
            end_ms=job.end_seconds * 1000 if version > 1 else None,
            version=version,
            attributes={
                "job_id": job.job_id,
                "workload_id": job.workload_id,
                "owner_team": job.owner_team,
                "model_id": job.model_id,
            },
        )

    def _xid_event(self, xid: Xid, second: int) -> Event:
        host, index = divmod(xid.gpu, self._spec.gpus_per_host)
        attributes = {"text": xid.text, "source": "simulate"}
        return Event("gpu_xid", gpu_uuid(self._spec, host, index), "", second * 1000, xid.code, attributes=attributes)

    def _introduce(self, host: int, second: int) -> tuple[Info, ...]:
        """Return what is said of each GPU once."""
        if host in self._introduced:
            return ()
        self._introduced.add(host)
        facts = {"name": self._spec.board.name, "driver": "590.48.01", "vbios": "96.00.99.00.01"}
        return tuple(
            Info("gpu_info", gpu_uuid(self._spec, host, index), "", second * 1000, facts | {"index": str(index)})
            for index in range(self._spec.gpus_per_host)
        )

    def _stored(self, kind: EntityKind, seconds: Sequence[Mapping[str, Floats]]) -> Stored:
        """Return metric -> stored integers, shape (ticks, subjects), for the metrics that the catalogue has."""
        known = {metric.name for metric in self._catalog.scalars(kind)} - self._omit
        names = [name for name in seconds[0] if name in known]
        return {
            name: to_column(self._catalog.get(name), np.stack([second[name] for second in seconds])) for name in names
        }

    def _schema(self, kind: EntityKind, names: tuple[str, ...], histograms: tuple[HistogramColumn, ...] = ()) -> Schema:
        if kind not in self._schemas:
            metrics = [self._catalog.get(name) for name in names]
            columns = [Column(metric.name, metric.unit, metric.dtype, metric.resolution) for metric in metrics]
            self._schemas[kind] = make_schema(kind, columns, histograms)
        return self._schemas[kind]

    def _table(self, kind: EntityKind, host: int, key: str, entities: tuple[Entity, ...]) -> EntityTable:
        at = (kind, host, key)
        if at not in self._tables:
            self._tables[at] = EntityTable(kind, host_name(self._spec, host), rack_name(host), entities)
        return self._tables[at]


def to_column(metric: Metric, physical: Floats) -> NDArray[Any]:
    """Return stored values of the metric's dtype for physical ones."""
    if metric.dtype == "f64":
        return physical.astype("<f8")
    return np.rint(physical / metric.resolution).astype(f"<{metric.dtype[0]}{int(metric.dtype[1:]) // 8}")


def dense_block(
    schema: Schema, columns: Mapping[str, NDArray[Any]], present: Mapping[str, NDArray[np.bool_]] | None = None
) -> ScalarBlock:
    """Return a block in which every entity has a row at every tick.

    Args:
        schema: Its columns, sorted by dtype, decide the groups.
        columns: Metric -> stored values, shape (ticks, entities).
        present: Metric -> which of those cells have a value; all of them where None.
    """
    ticks, entities = next(iter(columns.values())).shape
    groups: list[Group] = []
    first = 0
    while first < len(schema.columns):
        dtype = schema.columns[first].dtype
        names = [column.metric for column in schema.columns[first:] if column.dtype == dtype]
        values = np.stack([columns[name].reshape(-1) for name in names])
        mask = None if present is None else np.stack([present[name].reshape(-1) for name in names])
        groups.append(Group(first, values, None if mask is None or mask.all() else mask))
        first += len(names)
    return ScalarBlock(
        entity_index=np.tile(np.arange(entities, dtype=np.uint32), ticks),
        tick_index=np.repeat(np.arange(ticks, dtype=np.uint16), entities),
        observed_delta_ms=np.zeros(ticks * entities, dtype=np.int32),
        groups=tuple(groups),
        quality_row=np.zeros(0, dtype=np.uint32),
        quality_column=np.zeros(0, dtype=np.uint16),
        quality=np.zeros(0, dtype=np.uint8),
    )
