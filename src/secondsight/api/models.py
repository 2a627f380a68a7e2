"""Describe the answers of the read API, so that clients can be generated from `/openapi.json`."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Shape(BaseModel):
    """A JSON object whose names are written in camelCase and which has no others."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class ErrorDetail(Shape):
    """What went wrong."""

    code: str
    message: str
    hint: str


class ErrorAnswer(Shape):
    """Every error has this shape."""

    error: ErrorDetail


class CoverageAnswer(Shape):
    """How much of what was expected is stored; `shed` of the rest was declared lost by agents.

    `gaps` is null where too many rows would have to be looked at.
    """

    expected_samples: int
    stored_samples: int
    ratio: float
    gaps: int | None
    shed: int


class Point(Shape):
    """One window: its start and its figure."""

    ts: str
    value: float


class SeriesAnswer(Shape):
    """One series; which labels it has depends on `groupBy`. `points` in rows, `values` in columns."""

    metric: str
    unit: str
    aggregate: str
    tenant_id: str
    region: str | None = None
    cluster_id: str | None = None
    host_id: str | None = None
    gpu_id: str | None = None
    entity_id: str | None = None
    part: str | None = None
    job_id: str | None = None
    workload_id: str | None = None
    owner_team: str | None = None
    model_id: str | None = None
    gpu_model: str | None = None
    links: dict[str, str]
    points: list[Point] | None = None
    values: list[float | None] | None = None


class UnequalWindow(Shape):
    """A window that a change of clocks, or the length of a month, makes unlike the others."""

    ts: str
    seconds: int


class QueryAnswer(Shape):
    """Series and what they are worth; nothing was to report before `expectedFrom`.

    `ts` holds the window starts of `format=columns`, in epoch ms.
    """

    metric: str
    unit: str
    ts: list[int] | None = None
    series: list[SeriesAnswer]
    effective_resolution: str
    tier: str
    aggregate: str
    expected_from: str | None
    complete_through: str | None
    data_freshness_ms: int | None
    late_ratio: float | None
    coverage: CoverageAnswer
    partial: bool
    warnings: list[str]
    series_total: int
    next_cursor: str | None
    range_start: str
    range_end: str
    timezone: str | None = None
    unequal_windows: list[UnequalWindow] | None = None


class TopRow(Shape):
    """One place of a ranking."""

    rank: int
    value: float
    tenant_id: str
    cluster_id: str | None = None
    host_id: str | None = None
    gpu_id: str | None = None
    entity_id: str | None = None
    part: str | None = None
    job_id: str | None = None
    workload_id: str | None = None
    owner_team: str | None = None
    model_id: str | None = None
    gpu_model: str | None = None
    region: str | None = None
    links: dict[str, str]


class TopAnswer(Shape):
    """Greatest figures over a sliding window."""

    metric: str
    unit: str
    aggregate: str
    window: str
    rows: list[TopRow]
    complete_through: str | None
    data_freshness_ms: int | None
    coverage: CoverageAnswer
    partial: bool
    warnings: list[str]


class StatusCounts(Shape):
    """GPUs by the age of their newest row: up to 30 s, up to 5 min, longer, never seen."""

    total: int
    reporting: int
    silent: int
    lost: int
    unknown: int


class EvidenceAnswer(Shape):
    """What a verdict rests on."""

    rule: str
    since: str | None
    text: str


class VerdictAnswer(Shape):
    """How a GPU is: unavailable, degraded, unknown or healthy, and why."""

    verdict: str
    evidence: list[EvidenceAnswer]


class HealthCounts(Shape):
    """GPUs by verdict, the worst verdict of all, and how many GPUs each kind of evidence is of."""

    worst: str
    unavailable: int
    degraded: int
    unknown: int
    healthy: int
    reasons: dict[str, int]


class GpuAnswer(Shape):
    """One GPU as it is now; `values` are the newest ones, by metric."""

    tenant_id: str
    cluster_id: str
    rack: str
    host_id: str
    gpu_id: str
    index: int | None
    gpu_model: str
    job_id: str
    workload_id: str
    owner_team: str
    model_id: str
    status: str
    health: VerdictAnswer
    last_seen: str | None
    values: dict[str, float | None]
    links: dict[str, str]


class Hottest(Shape):
    """The GPU with the highest temperature."""

    gpu_id: str
    host_id: str
    index: int | None
    temperature_celsius: float


class FleetAnswer(Shape):
    """Sums over every GPU in scope; figures are of those that report."""

    gpus: StatusCounts
    health: HealthCounts
    hosts: int
    clusters: int
    power_watts: float | None
    utilization_ratio: float | None
    hottest: Hottest | None
    collectors: int
    idle_collectors: int
    complete_through: str | None
    data_freshness_ms: int | None
    coverage: CoverageAnswer
    warnings: list[str]
    links: dict[str, str]


class GpuPage(Shape):
    """A page of GPUs. `warnings` name what is asked for and is nowhere."""

    gpus: list[GpuAnswer]
    total: int
    warnings: list[str] = Field(default=[])
    next_cursor: str | None
    complete_through: str | None
    data_freshness_ms: int | None


class PlaceAnswer(Shape):
    """Sums over the GPUs of one cluster or host."""

    tenant_id: str
    cluster_id: str
    host_id: str | None = None
    hosts: int
    gpus: StatusCounts
    health: HealthCounts
    power_watts: float | None
    utilization_ratio: float | None
    links: dict[str, str]


class ClusterPage(Shape):
    """A page of clusters."""

    clusters: list[PlaceAnswer]
    total: int
    next_cursor: str | None
    complete_through: str | None
    data_freshness_ms: int | None


class ClusterAnswer(Shape):
    """One cluster with its hosts."""

    cluster: PlaceAnswer
    hosts: list[PlaceAnswer]
    total: int
    next_cursor: str | None
    complete_through: str | None
    data_freshness_ms: int | None


class MetricAnswer(Shape):
    """One metric; `aggregates` are the legal ones, the default first."""

    name: str
    kind: str
    unit: str
    type: str
    rollup: str
    priority: int
    description: str
    aggregates: list[str]
    aliases: list[str]
    labels: list[str]
    minimum: float | None
    maximum: float | None
    values: dict[str, str]
    bitmask: bool


class CatalogAnswer(Shape):
    """The metrics that the caller may read, or a page of them."""

    metrics: list[MetricAnswer]
    total: int
    next_cursor: str | None


class CollectorAnswer(Shape):
    """How far one collector has come; times and lag are null before its first sample."""

    tenant_id: str
    cluster_id: str
    host_id: str
    collector_id: str
    watermark: str | None
    newest_event_time: str | None
    last_ingest_time: str | None
    rollup_through: str | None
    lag_ms: int | None
    idle: bool
    backlog: bool


class CollectorPage(Shape):
    """A page of collectors, those furthest behind first."""

    collectors: list[CollectorAnswer]
    total: int
    next_cursor: str | None


class SessionRequest(Shape):
    """A token to sign in with."""

    token: str


class SessionAnswer(Shape):
    """Who is signed in."""

    tenant_id: str
    name: str
    role: str


class HealthAnswer(Shape):
    """Whether this api serves."""

    status: str


class DebugRequest(Shape):
    """What shall be sampled every second: one of cluster, host, GPU, job; a cluster may go with the others."""

    cluster: str = Field("", max_length=512)
    host: str = Field("", max_length=512)
    gpu: str = Field("", max_length=512)
    job: str = Field("", max_length=512)
    minutes: float = Field(15, gt=0, description="How long, from now.")
    back_minutes: float = Field(0, ge=0, description="How far back, as far as hosts still have the seconds.")


class DebugAnswer(Shape):
    """A debug session; `hosts` is empty for a whole cluster."""

    session_id: str
    tenant_id: str
    cluster_id: str
    target_kind: str
    target: str
    hosts: list[str]
    start: str
    until: str
    back_minutes: float
    values_per_second: int
    active: bool
    started_by: str
    notes: list[str]


class DebugList(Shape):
    """Sessions that run or ended in the last day, and what is left of the budget."""

    sessions: list[DebugAnswer]
    total: int
    next_cursor: str | None
    budget_values_per_second: int
    free_values_per_second: int
