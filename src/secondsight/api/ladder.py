"""Serve the figures of one rung of the ladder: a cluster, a host, a GPU, a job, an AI model."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from secondsight.access.scope import Scope
from secondsight.api.models import ErrorAnswer, QueryAnswer
from secondsight.api.parameters import TelemetryParameters, Word
from secondsight.api.reads import ReadRoute
from secondsight.api.series import Accept, answer_query
from secondsight.api.services import Reader, Services, Shared
from secondsight.query.fleet import NOW_METRICS, not_found
from secondsight.query.request import Filters, Group

router = APIRouter(
    route_class=ReadRoute, tags=["series"], responses={code: {"model": ErrorAnswer} for code in (400, 404, 422)}
)


class RungParameters(TelemetryParameters):
    """A query for figures of one rung; without metrics those that lists show."""

    group_by: Annotated[Word, Field(alias="groupBy", description="Labels that tell series apart, by commas.")] = ""
    limit: int | None = None
    cursor: Annotated[str, Field(max_length=16)] = ""


@router.get("/v1/clusters/{cluster_id}/metrics", response_model=QueryAnswer)
def cluster_metrics(
    cluster_id: str, services: Shared, scope: Reader, asked: Annotated[RungParameters, Query()], accept: Accept = ""
) -> Response:
    """Return figures of one cluster as a whole, or as `groupBy` says."""
    return _rung(services, scope, asked, accept, Filters(cluster=(cluster_id,)), Group.CLUSTER)


@router.get("/v1/nodes/{host_id}/metrics", response_model=QueryAnswer)
def node_metrics(
    host_id: str, services: Shared, scope: Reader, asked: Annotated[RungParameters, Query()], accept: Accept = ""
) -> Response:
    """Return figures of the GPUs of one host, or as `groupBy` says."""
    return _rung(services, scope, asked, accept, Filters(host=(host_id,)), Group.GPU)


@router.get("/v1/gpus/{gpu_id}/metrics", response_model=QueryAnswer)
def gpu_metrics(
    gpu_id: str, services: Shared, scope: Reader, asked: Annotated[RungParameters, Query()], accept: Accept = ""
) -> Response:
    """Return figures of one GPU, at any resolution."""
    return _rung(services, scope, asked, accept, Filters(gpu=(gpu_id,)), Group.GPU)


@router.get("/v1/jobs/{job_id}/metrics", response_model=QueryAnswer)
def job_metrics(
    job_id: str, services: Shared, scope: Reader, asked: Annotated[RungParameters, Query()], accept: Accept = ""
) -> Response:
    """Return figures of the GPUs of one job while they were its own."""
    return _rung(services, scope, asked, accept, Filters(job=(job_id,)), Group.GPU)


@router.get("/v1/models/{model_id}/metrics", response_model=QueryAnswer)
def model_metrics(
    model_id: str, services: Shared, scope: Reader, asked: Annotated[RungParameters, Query()], accept: Accept = ""
) -> Response:
    """Return figures of all GPUs that ran one AI model, while they ran it."""
    return _rung(services, scope, asked, accept, Filters(model=(model_id,)), Group.MODEL)


def _rung(
    services: Services, scope: Scope, asked: RungParameters, accept: str, filters: Filters, group: Group
) -> Response:
    text = asked.text()
    if not (asked.metric or asked.metrics):
        text = replace(text, metrics=",".join(name for name in NOW_METRICS if scope.shows(name)))
    text = replace(text, group_by=asked.group_by or group.value, limit=asked.limit, cursor=asked.cursor)
    return answer_query(services, scope, text, accept, filters=filters, check=lambda: _check(services, scope, filters))


def _check(services: Services, scope: Scope, filters: Filters) -> None:
    """Refuse a rung that is not there, or out of scope; of jobs and models nothing but their rows is known."""
    for _tenant, cluster, host, gpu in services.inventory.places(scope):
        if cluster in filters.cluster or host in filters.host or gpu in filters.gpu:
            return
    what, names = next((name, getattr(filters, name)) for name in Filters.__slots__ if getattr(filters, name))
    raise not_found(what, names[0])
