"""Serve series: `/v1/metrics/query`, the telemetry of one GPU, and rankings."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Response

from secondsight.access.scope import Scope
from secondsight.api.models import ErrorAnswer, QueryAnswer, TopAnswer
from secondsight.api.parameters import SeriesParameters, TelemetryParameters, TopParameters
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Reader, Services, Shared
from secondsight.errors import Rejected
from secondsight.query.answer import Answer, to_arrow, to_csv, to_json, to_parquet, top_json
from secondsight.query.request import Filters, Format, QueryText, parse_query
from secondsight.query.times import parse_time

ARROW = "application/vnd.apache.arrow.stream"
CSV = "text/csv"
JSON = "application/json"
PARQUET = "application/vnd.apache.parquet"
_WEIGHT = re.compile(r"(0(\.[0-9]{0,3})?|1(\.0{0,3})?)")

router = APIRouter(
    route_class=ReadRoute, tags=["series"], responses={400: {"model": ErrorAnswer}, 422: {"model": ErrorAnswer}}
)

Accept = Annotated[str, Header(description=f"`{ARROW}`, `{PARQUET}` and `{CSV}` are understood beside JSON.")]


@router.get("/v1/metrics/query", response_model=QueryAnswer)
def query_metrics(
    services: Shared, scope: Reader, asked: Annotated[SeriesParameters, Query()], accept: Accept = ""
) -> Response:
    """Return metrics of one kind over time: one series per entity and part, or as `groupBy` says."""
    return answer_query(services, scope, asked.text(), accept)


@router.get("/v1/gpus/{gpu_id}/telemetry", response_model=QueryAnswer)
def gpu_telemetry(
    gpu_id: str, services: Shared, scope: Reader, asked: Annotated[TelemetryParameters, Query()], accept: Accept = ""
) -> Response:
    """Return every metric asked for of one GPU."""
    filters = Filters(gpu=(gpu_id,))
    return answer_query(
        services, scope, asked.text(), accept, filters=filters, check=lambda: services.fleet.gpu(gpu_id, scope)
    )


@router.get("/v1/top", response_model=TopAnswer)
def top(services: Shared, scope: Reader, asked: Annotated[TopParameters, Query()]) -> Response:
    """Return the highest or lowest figures over a sliding window that ends now, or at another time."""
    at_ms = parse_time(asked.at, services.clock.now_ms())
    query = parse_query(asked.text(), services.catalog, at_ms)
    if len(query.selected) > 1:
        raise Rejected("one_metric", "a ranking is by one metric and one aggregate", "name one of each")
    answer = services.runner.top(query, asked.n, scope, highest=asked.order == "highest")
    return _json(top_json(answer))


def answer_query(
    services: Services,
    scope: Scope,
    text: QueryText,
    accept: str,
    *,
    filters: Filters | None = None,
    check: Callable[[], object] | None = None,
) -> Response:
    """Return the answer to a query in the type that the caller wants.

    `filters` stand in place of those of the text, whose commas divide names; `check` refuses what there is nothing of,
    and is called where nothing was found and nothing expected.

    Raises:
        Rejected, Retryable: As `QueryRunner.run`.
    """
    query = parse_query(text, services.catalog, services.clock.now_ms())
    if filters is not None:
        query = replace(query, filters=filters)
    answer = services.runner.run(query, scope)
    if check is not None and not answer.series and not answer.coverage.expected:
        check()
    return _written(answer, query.format, accept)


def _written(answer: Answer, form: Format, accept: str) -> Response:
    """Return an answer in the format asked for, else in the type that the caller accepts, else as JSON."""
    named = {Format.ARROW: ARROW, Format.CSV: CSV, Format.PARQUET: PARQUET}.get(form) or accepted_type(accept)
    if named == ARROW:
        return Response(to_arrow(answer), media_type=ARROW)
    if named == CSV:
        return Response(to_csv(answer), media_type=CSV)
    if named == PARQUET:
        return Response(to_parquet(answer), media_type=PARQUET)
    return _json(to_json(answer, form))


def accepted_type(accept: str) -> str:
    """Return the first of the types named in an Accept header that we write beside JSON, and JSON where there is none.

    The highest weight wins; of equal ones the first. A type of weight 0 is one that the caller does not want.
    """
    offers = [(_weight(parameters), name) for name, parameters in map(_media_range, accept.lower().split(","))]
    known = [offer for offer in offers if offer[1] in (ARROW, CSV, PARQUET, JSON) and offer[0] > 0]
    return max(known, key=lambda offer: offer[0], default=(0.0, JSON))[1]


def _media_range(text: str) -> tuple[str, list[str]]:
    name, *parameters = (piece.strip() for piece in text.split(";"))
    return name, parameters


def _weight(parameters: list[str]) -> float:
    """Return the weight of a media range; one that cannot be read is 0."""
    written = [parameter[2:] for parameter in parameters if parameter.startswith("q=")] or ["1"]
    return float(written[0]) if _WEIGHT.fullmatch(written[0]) else 0.0


def _json(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), media_type=JSON)
