"""Serve the ladder from the fleet down to one GPU, as it is now."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query

from secondsight.api.models import (
    ClusterAnswer,
    ClusterPage,
    CoverageAnswer,
    ErrorAnswer,
    EvidenceAnswer,
    FleetAnswer,
    GpuAnswer,
    GpuPage,
    HealthCounts,
    Hottest,
    PlaceAnswer,
    StatusCounts,
    VerdictAnswer,
)
from secondsight.api.parameters import GpuListParameters, PageParameters, page_of, words_of
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Reader, Shared
from secondsight.catalog.health import Health
from secondsight.errors import Rejected
from secondsight.query.answer import coverage_json
from secondsight.query.fleet import TEMPERATURE, FleetNow, GpuNow, Status, Summary, grouped, not_found, summarise
from secondsight.query.health import Key, Verdict
from secondsight.query.hints import unknown_names
from secondsight.query.request import Filters, parse_filters
from secondsight.query.times import format_time

router = APIRouter(route_class=ReadRoute, tags=["fleet"], responses={404: {"model": ErrorAnswer}})


@router.get("/v1/fleet")
def fleet(services: Shared, scope: Reader) -> FleetAnswer:
    """Return sums over every GPU in scope as it is now."""
    now = services.fleet.read(scope)
    verdicts = services.health.read(now, scope)
    summary = summarise(now.gpus)
    idle = now.progress.idle
    return FleetAnswer(
        gpus=_counts(summary, len(now.gpus)),
        health=_health_of(now.gpus, verdicts),
        hosts=summary.hosts,
        clusters=summary.clusters,
        power_watts=summary.power_watts,
        utilization_ratio=summary.utilization_ratio,
        hottest=_hottest(summary.hottest),
        collectors=now.progress.collectors,
        idle_collectors=idle,
        complete_through=_time(now.progress.complete_through_ms),
        data_freshness_ms=now.freshness_ms,
        coverage=CoverageAnswer.model_validate(coverage_json(now.coverage)),
        warnings=[f"{idle} of {now.progress.collectors} collectors in scope are silent"] if idle else [],
        links={"clusters": "/v1/clusters", "gpus": "/v1/gpus"},
    )


@router.get("/v1/gpus")
def gpus(services: Shared, scope: Reader, asked: Annotated[GpuListParameters, Query()]) -> GpuPage:
    """Return GPUs in order of cluster, host and index."""
    filters = parse_filters({name: getattr(asked, name) for name in ("cluster", "host", "job", "team")})
    statuses = _checked("status", asked.status, Status)
    wanted = _checked("health", asked.health, Health)
    now = services.fleet.read(scope)
    verdicts = services.health.read(now, scope)
    found = [
        gpu
        for gpu in now.gpus
        if _admits(filters, gpu)
        and (not statuses or gpu.status in statuses)
        and (not wanted or verdicts[key_of(gpu)].health in wanted)
    ]
    page = _gpu_page(now, found, asked, verdicts)
    return page if found else page.model_copy(update={"warnings": [*unknown_names(filters, services.inventory, scope)]})


@router.get("/v1/gpus/{gpu_id}")
def gpu(gpu_id: str, services: Shared, scope: Reader) -> GpuAnswer:
    """Return one GPU as it is now."""
    found = services.fleet.gpu(gpu_id, scope)
    return _gpu(found, services.health.read(services.fleet.read(scope), scope)[key_of(found)])


@router.get("/v1/clusters")
def clusters(services: Shared, scope: Reader, asked: Annotated[PageParameters, Query()]) -> ClusterPage:
    """Return clusters with sums over their GPUs."""
    now = services.fleet.read(scope)
    verdicts = services.health.read(now, scope)
    groups = list(grouped(now.gpus, "cluster_id").values())
    page, cursor = page_of(groups, asked)
    return ClusterPage(
        clusters=[_place(members, verdicts) for members in page],
        total=len(groups),
        next_cursor=cursor,
        complete_through=_time(now.progress.complete_through_ms),
        data_freshness_ms=now.freshness_ms,
    )


@router.get("/v1/clusters/{cluster_id}")
def cluster(
    cluster_id: str, services: Shared, scope: Reader, asked: Annotated[PageParameters, Query()]
) -> ClusterAnswer:
    """Return one cluster and its hosts."""
    now = services.fleet.read(scope)
    verdicts = services.health.read(now, scope)
    members = [gpu for gpu in now.gpus if gpu.cluster_id == cluster_id]
    if not members:
        raise not_found("cluster", cluster_id)
    hosts = list(grouped(members, "host_id").values())
    page, cursor = page_of(hosts, asked)
    return ClusterAnswer(
        cluster=_place(members, verdicts),
        hosts=[_place(on_host, verdicts, host_id=on_host[0].host_id) for on_host in page],
        total=len(hosts),
        next_cursor=cursor,
        complete_through=_time(now.progress.complete_through_ms),
        data_freshness_ms=now.freshness_ms,
    )


@router.get("/v1/nodes/{host_id}/gpus")
def node_gpus(host_id: str, services: Shared, scope: Reader, asked: Annotated[PageParameters, Query()]) -> GpuPage:
    """Return the GPUs of one host; a host may have none."""
    now = services.fleet.read(scope)
    members = [gpu for gpu in now.gpus if gpu.host_id == host_id]
    if not members and all(place[2] != host_id for place in services.inventory.places(scope)):
        raise not_found("host", host_id)
    return _gpu_page(now, members, asked, services.health.read(now, scope))


def _gpu_page(
    now: FleetNow, found: Sequence[GpuNow], asked: PageParameters, verdicts: Mapping[Key, Verdict]
) -> GpuPage:
    page, cursor = page_of(found, asked)
    return GpuPage(
        gpus=[_gpu(gpu, verdicts[key_of(gpu)]) for gpu in page],
        total=len(found),
        next_cursor=cursor,
        complete_through=_time(now.progress.complete_through_ms),
        data_freshness_ms=now.freshness_ms,
    )


def _checked(name: str, text: str, legal: type[StrEnum]) -> frozenset[str]:
    """Return the words of a list.

    Raises:
        Rejected(bad_health, bad_status): One is none of the legal ones.
    """
    words = frozenset(words_of(text))
    if not words <= set(legal):
        raise Rejected(f"bad_{name}", f"{name} cannot be {text[:80]!r}", f"legal: {', '.join(legal)}")
    return words


def _admits(filters: Filters, gpu: GpuNow) -> bool:
    wanted = (
        (filters.cluster, gpu.cluster_id),
        (filters.host, gpu.host_id),
        (filters.job, gpu.job_id),
        (filters.team, gpu.owner_team),
    )
    return all(not names or value in names for names, value in wanted)


def _gpu(gpu: GpuNow, verdict: Verdict) -> GpuAnswer:
    path = f"/v1/gpus/{quote(gpu.gpu_id, safe='')}"
    return GpuAnswer(
        tenant_id=gpu.tenant_id,
        cluster_id=gpu.cluster_id,
        rack=gpu.rack,
        host_id=gpu.host_id,
        gpu_id=gpu.gpu_id,
        index=gpu.index,
        gpu_model=gpu.gpu_model,
        job_id=gpu.job_id,
        workload_id=gpu.workload_id,
        owner_team=gpu.owner_team,
        model_id=gpu.model_id,
        status=gpu.status.value,
        health=verdict_answer(verdict),
        last_seen=_time(gpu.last_seen_ms),
        values=dict(gpu.values),
        links={
            "cluster": f"/v1/clusters/{quote(gpu.cluster_id, safe='')}",
            "host": f"/v1/nodes/{quote(gpu.host_id, safe='')}/gpus",
            "gpu": path,
            "raw": f"{path}/telemetry",
        },
    )


def _place(members: Sequence[GpuNow], verdicts: Mapping[Key, Verdict], host_id: str | None = None) -> PlaceAnswer:
    first, summary = members[0], summarise(members)
    cluster_path = f"/v1/clusters/{quote(first.cluster_id, safe='')}"
    host_link = {} if host_id is None else {"gpus": f"/v1/nodes/{quote(host_id, safe='')}/gpus"}
    return PlaceAnswer(
        tenant_id=first.tenant_id,
        cluster_id=first.cluster_id,
        host_id=host_id,
        hosts=summary.hosts,
        gpus=_counts(summary, len(members)),
        health=_health_of(members, verdicts),
        power_watts=summary.power_watts,
        utilization_ratio=summary.utilization_ratio,
        links={"cluster": cluster_path, **host_link},
    )


def key_of(gpu: GpuNow) -> Key:
    """Return what verdicts know a GPU by."""
    return (gpu.tenant_id, gpu.cluster_id, gpu.host_id, gpu.gpu_id)


def verdict_answer(verdict: Verdict) -> VerdictAnswer:
    """Return a verdict as answers have it."""
    evidence = [EvidenceAnswer(rule=one.rule, since=_time(one.since_ms), text=one.text) for one in verdict.evidence]
    return VerdictAnswer(verdict=verdict.health.value, evidence=evidence)


def _health_of(gpus: Sequence[GpuNow], verdicts: Mapping[Key, Verdict]) -> HealthCounts:
    """Return how many GPUs are how, worst first, and by what evidence."""
    found = [verdicts[key_of(gpu)] for gpu in gpus]
    counts = Counter(one.health.value for one in found)
    reasons = Counter(one.rule for each in found for one in each.evidence)
    worst = next((health for health in Health if counts[health.value]), Health.UNKNOWN)
    return HealthCounts(
        worst=worst.value, **{health.value: counts[health.value] for health in Health}, reasons=dict(reasons)
    )


def _counts(summary: Summary, total: int) -> StatusCounts:
    return StatusCounts(total=total, **{status.value: summary.counts[status] for status in Status})


def _hottest(gpu: GpuNow | None) -> Hottest | None:
    celsius = gpu.values.get(TEMPERATURE) if gpu else None
    if gpu is None or celsius is None:
        return None
    return Hottest(gpu_id=gpu.gpu_id, host_id=gpu.host_id, index=gpu.index, temperature_celsius=celsius)


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time(time_ms)
