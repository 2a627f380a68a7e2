"""Serve health, readiness and this process' own metrics."""

from fastapi import APIRouter, Response

from secondsight.access.metadata import reading
from secondsight.api.models import ErrorAnswer, HealthAnswer
from secondsight.api.services import Shared

router = APIRouter(tags=["operations"])


@router.get("/healthz")
def health() -> HealthAnswer:
    """Tell that the process answers."""
    return HealthAnswer(status="ok")


@router.get("/readyz", responses={503: {"model": ErrorAnswer}})
def readiness(services: Shared) -> HealthAnswer:
    """Tell that the store and the metadata store answer."""
    services.store.query("SELECT 1 AS one", settings={"max_execution_time": 5})
    with reading(services.metadata) as connection:
        connection.exec_driver_sql("SELECT 1")
    return HealthAnswer(status="ready")


@router.get("/metrics", response_class=Response)
def selfmetrics(services: Shared) -> Response:
    """Return this process' counters as Prometheus text; it names no tenant."""
    return Response(services.selfmetrics.render(hidden=("tenant",)), media_type="text/plain; version=0.0.4")
