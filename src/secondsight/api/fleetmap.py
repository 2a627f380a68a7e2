"""Serve the fleet map, one byte a GPU, and the search."""

import base64
from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field

from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import Names, PageParameters, Parameters, Time, Word, page_of
from secondsight.api.reads import ReadRoute
from secondsight.api.services import Reader, Shared
from secondsight.query.board import Cell
from secondsight.query.fleetmap import Frame, read_frame
from secondsight.query.request import Filters, parse_filters
from secondsight.query.search import Found, Match, SearchReader
from secondsight.query.times import format_time, parse_time

BYTES = "application/octet-stream"
HOST_OF = attrgetter("tenant_id", "cluster_id", "rack", "host_id")

router = APIRouter(
    route_class=ReadRoute, tags=["fleet"], responses={400: {"model": ErrorAnswer}, 422: {"model": ErrorAnswer}}
)


class CellAnswer(Shape):
    """One GPU of a layout."""

    tenant_id: str
    cluster_id: str
    rack: str
    host_id: str
    gpu_id: str
    index: int | None


class HostCells(Shape):
    """GPUs of one host that follow each other in a layout."""

    tenant_id: str
    cluster_id: str
    rack: str
    host_id: str
    gpu_ids: list[str]
    indexes: list[int | None]


class Naming(StrEnum):
    """How a layout's GPUs are named: each by itself, or those of a host together, in a third of the bytes."""

    CELLS = "cells"
    HOSTS = "hosts"


class MapAnswer(Shape):
    """One second of the fleet.

    `frame` is base64, one byte a cell: 0 is no value, 1 to 255 divide the range from `low` to `high` evenly. One of
    `cells` and `hosts` names the GPUs in their order; both are null where the caller named the layout that is in use
    still. `behindMs` is how long ago `at` was.
    """

    at: str
    behind_ms: int
    metric: str
    unit: str
    low: float
    high: float
    layout: str
    cells: list[CellAnswer] | None
    hosts: list[HostCells] | None
    count: int
    frame: str
    links: dict[str, str]


class MapParameters(Parameters):
    """Which second of which GPUs."""

    at: Annotated[Time, Field(description="The second; by default the newest that most hosts have told.")] = ""
    metric: Word = "gpu_utilization_ratio"
    cluster: Names = ""
    host: Names = ""
    layout: Annotated[str, Field(max_length=64, description="Name of a layout that the caller has.")] = ""
    naming: Annotated[Naming, Field(description="`hosts` names the GPUs of a host together.")] = Naming.CELLS

    def filters(self) -> Filters:
        """Return the filters that are meant."""
        return parse_filters({"cluster": self.cluster, "host": self.host})


class MatchAnswer(Shape):
    """One thing that was found; `kind` is cluster, host, gpu, job, team or model."""

    kind: str
    tenant_id: str
    name: str
    cluster_id: str | None
    host_id: str | None
    links: dict[str, str]


class SearchPage(Shape):
    """A page of what was found, whole names first."""

    matches: list[MatchAnswer]
    total: int
    next_cursor: str | None


class SearchParameters(PageParameters):
    """What is looked for."""

    q: Annotated[str, Field(max_length=200, description="A part of a name.")]


@router.get("/v1/fleet/map", response_model=MapAnswer)
def fleet_map(
    services: Shared,
    scope: Reader,
    asked: Annotated[MapParameters, Query()],
    accept: Annotated[str, Header(description=f"`{BYTES}` gives the frame alone.")] = "",
) -> Response:
    """Return one byte for each GPU at one second."""
    now_ms, filters = services.clock.now_ms(), asked.filters()
    metric = services.catalog.resolve(asked.metric)
    at_ms = parse_time(asked.at, now_ms) if asked.at else services.boards.newest_ms(filters, now_ms, scope)
    frame = read_frame(services.boards, metric, filters, at_ms, scope)
    if accept.strip().lower().startswith(BYTES):
        return Response(frame.frame, media_type=BYTES, headers=_headers(frame))
    return Response(_map(frame, asked, now_ms).model_dump_json(by_alias=True), media_type="application/json")


@router.get("/v1/search")
def search(services: Shared, scope: Reader, asked: Annotated[SearchParameters, Query()]) -> SearchPage:
    """Return clusters, hosts, GPUs, jobs, teams and AI models whose names hold a text."""
    found = SearchReader(services.inventory).read(asked.q, scope, services.clock.now_ms())
    page, cursor = page_of(found, asked)
    return SearchPage(matches=[_match(one) for one in page], total=len(found), next_cursor=cursor)


def _headers(frame: Frame) -> dict[str, str]:
    return {
        "X-Secondsight-At": format_time(frame.board.at_ms),
        "X-Secondsight-Layout": frame.board.layout,
        "X-Secondsight-Low": repr(frame.low),
        "X-Secondsight-High": repr(frame.high),
    }


def _map(frame: Frame, asked: MapParameters, now_ms: int) -> MapAnswer:
    naming = None if asked.layout == frame.board.layout else asked.naming
    return MapAnswer(
        at=format_time(frame.board.at_ms),
        behind_ms=now_ms - frame.board.at_ms,
        metric=frame.metric.name,
        unit=frame.metric.unit,
        low=frame.low,
        high=frame.high,
        layout=frame.board.layout,
        cells=[cell_answer(cell) for cell in frame.board.cells] if naming is Naming.CELLS else None,
        hosts=[_host(tuple(of)) for _, of in groupby(frame.board.cells, HOST_OF)] if naming is Naming.HOSTS else None,
        count=len(frame.board.cells),
        frame=base64.b64encode(frame.frame).decode(),
        links={"clusters": "/v1/clusters", "gpus": "/v1/gpus"},
    )


def cell_answer(cell: Cell) -> CellAnswer:
    """Return one GPU of a layout as answers have it."""
    return CellAnswer(
        tenant_id=cell.tenant_id,
        cluster_id=cell.cluster_id,
        rack=cell.rack,
        host_id=cell.host_id,
        gpu_id=cell.gpu_id,
        index=cell.index,
    )


def _host(members: Sequence[Cell]) -> HostCells:
    """Return GPUs that are all of one host."""
    first = members[0]
    return HostCells(
        tenant_id=first.tenant_id,
        cluster_id=first.cluster_id,
        rack=first.rack,
        host_id=first.host_id,
        gpu_ids=[cell.gpu_id for cell in members],
        indexes=[cell.index for cell in members],
    )


def _match(one: Match) -> MatchAnswer:
    return MatchAnswer(
        kind=one.kind.value,
        tenant_id=one.tenant_id,
        name=one.name,
        cluster_id=one.cluster_id or None,
        host_id=one.host_id or None,
        links=_links(one),
    )


def _links(one: Match) -> dict[str, str]:
    name = quote(one.name, safe="")
    paths = {
        Found.CLUSTER: f"/v1/clusters/{name}",
        Found.HOST: f"/v1/nodes/{name}/gpus",
        Found.GPU: f"/v1/gpus/{name}",
        Found.JOB: f"/v1/jobs/{name}/metrics",
        Found.TEAM: f"/v1/gpus?team={name}",
        Found.MODEL: f"/v1/models/{name}/metrics",
    }
    return {"self": paths[one.kind]}
