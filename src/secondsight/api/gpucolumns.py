"""Serve every GPU as it is now in columns: who they are once, how they are each time, a tenth of the bytes of rows."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from secondsight.api.models import ErrorAnswer, Shape, VerdictAnswer
from secondsight.api.parameters import Names, Parameters
from secondsight.api.places import key_of, verdict_answer
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Reader, Shared
from secondsight.catalog.health import Health
from secondsight.query.fleet import NOW_METRICS, GpuNow, Status
from secondsight.query.health import Verdict
from secondsight.query.request import parse_filters
from secondsight.query.times import format_time

HEALTHY = Verdict(Health.HEALTHY)

router = APIRouter(route_class=ReadRoute, tags=["fleet"], responses={400: {"model": ErrorAnswer}})


class GpuNames(Shape):
    """Who GPUs are, one column a name."""

    tenant_id: list[str]
    cluster_id: list[str]
    rack: list[str]
    host_id: list[str]
    gpu_id: list[str]
    index: list[int | None]
    gpu_model: list[str]
    job_id: list[str]
    workload_id: list[str]
    owner_team: list[str]
    model_id: list[str]


class NotableGpu(Shape):
    """A GPU, by its place in the columns, that is silent, not healthy, or has something to be said of it."""

    at: int
    status: str
    health: VerdictAnswer


class GpuColumns(Shape):
    """GPUs as they are now, in order of cluster, host and index.

    `names` is null where the caller named the layout that is in use still. Whoever is not among `notable` reports and
    is healthy. `behindMs` is how much older the newest row of each is than `newest`, null where there never was one.
    """

    layout: str
    names: GpuNames | None
    notable: list[NotableGpu]
    newest: str | None
    behind_ms: list[int | None]
    values: dict[str, list[float | None]]
    total: int
    complete_through: str | None
    data_freshness_ms: int | None


class GpuColumnsParameters(Parameters):
    """Which GPUs."""

    cluster: Names = ""
    layout: Annotated[str, Field(max_length=64, description="Name of a layout that the caller has.")] = ""


@router.get("/v1/fleet/gpus")
def gpu_columns(services: Shared, scope: Reader, asked: Annotated[GpuColumnsParameters, Query()]) -> GpuColumns:
    """Return every GPU as it is now, in columns."""
    clusters = parse_filters({"cluster": asked.cluster}).cluster
    now = services.fleet.read(scope)
    verdicts = services.health.read(now, scope)
    gpus = [gpu for gpu in now.gpus if not clusters or gpu.cluster_id in clusters]
    names = _names(gpus)
    layout = blake2b(names.model_dump_json().encode(), digest_size=12).hexdigest()
    newest_ms = max((gpu.last_seen_ms for gpu in gpus if gpu.last_seen_ms is not None), default=None)
    through_ms = now.progress.complete_through_ms
    return GpuColumns(
        layout=layout,
        names=None if asked.layout == layout else names,
        notable=_notable(gpus, [verdicts[key_of(gpu)] for gpu in gpus]),
        newest=None if newest_ms is None else format_time(newest_ms),
        behind_ms=_behind(gpus, newest_ms),
        values=_values(gpus),
        total=len(gpus),
        complete_through=None if through_ms is None else format_time(through_ms),
        data_freshness_ms=now.freshness_ms,
    )


def _behind(gpus: Sequence[GpuNow], newest_ms: int | None) -> list[int | None]:
    seen = [gpu.last_seen_ms for gpu in gpus]
    return [None if one is None or newest_ms is None else newest_ms - one for one in seen]


def _values(gpus: Sequence[GpuNow]) -> dict[str, list[float | None]]:
    """Return the figures that the scope shows, by metric."""
    shown = [metric for metric in NOW_METRICS if any(metric in gpu.values for gpu in gpus)]
    return {metric: [gpu.values.get(metric) for gpu in gpus] for metric in shown}


def _names(gpus: Sequence[GpuNow]) -> GpuNames:
    return GpuNames(**{name: [getattr(gpu, name) for gpu in gpus] for name in GpuNames.model_fields})


def _notable(gpus: Sequence[GpuNow], verdicts: Sequence[Verdict]) -> list[NotableGpu]:
    return [
        NotableGpu(at=at, status=gpu.status.value, health=verdict_answer(verdict))
        for at, (gpu, verdict) in enumerate(zip(gpus, verdicts, strict=True))
        if gpu.status is not Status.REPORTING or verdict != HEALTHY
    ]
