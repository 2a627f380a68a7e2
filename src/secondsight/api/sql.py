"""Serve guarded SQL: `POST /v1/sql`, and the views that it may read.

Statements wait and run on threads of their own, so that however many of them wait, no other route does.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Body, Depends, Header, Query, Response
from pydantic import Field

from secondsight.access.metadata import ID_LENGTH_MAXIMUM
from secondsight.access.scope import Scope, united
from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import Parameters
from secondsight.api.reads import ReadRoute
from secondsight.api.series import ARROW, CSV
from secondsight.api.services import Caller, Reader, Shared, scope_now
from secondsight.api.sqlforms import SqlResult, written
from secondsight.errors import Rejected
from secondsight.guard.views import describe

T = TypeVar("T")
THREADS = 40
TEXT_LENGTH_MAXIMUM = 64_000

router = APIRouter(
    route_class=ReadRoute, tags=["sql"], responses={code: {"model": ErrorAnswer} for code in (400, 422, 429)}
)
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sql")


class SqlRequest(Shape):
    """One SELECT over the curated views that `GET /v1/sql/views` describes.

    `tenant` narrows it to grants in that tenant, for those who have grants of several kinds.
    """

    sql: Annotated[str, Field(max_length=TEXT_LENGTH_MAXIMUM)]
    tenant: Annotated[str, Field(max_length=ID_LENGTH_MAXIMUM)] = ""


class SqlParameters(Parameters):
    """How rows are written."""

    format: Annotated[Literal["json", "columns", "csv", "arrow"] | None, Field(description="Else as accepted.")] = None


class ViewColumnAnswer(Shape):
    """One column of a view; `legal` says what may be computed of it, where not anything may."""

    name: str
    type: str
    unit: str
    description: str
    legal: str


class ViewAnswer(Shape):
    """One curated view."""

    name: str
    description: str
    time_column: str
    grain_seconds: int
    columns: list[ViewColumnAnswer]


class ViewList(Shape):
    """Every view that a statement may read."""

    views: list[ViewAnswer]


def asking_scope(caller: Caller, services: Shared) -> Scope:
    """Return what a caller may see, without a turn among readers: statements have turns of their own.

    Raises:
        Throttled(rate_limited): They send too much.
        Rejected(role_cannot_read, no_grant).
    """
    services.admission.check_rate(caller.subject)
    return scope_now(caller, services)


Asker = Annotated[Scope, Depends(asking_scope)]
Accept = Annotated[str, Header(description=f"`{ARROW}` and `{CSV}` are understood beside JSON.")]


@router.post("/v1/sql", response_model=SqlResult)
async def sql(
    services: Shared,
    scope: Asker,
    asked: Annotated[SqlRequest, Body()],
    form: Annotated[SqlParameters, Query()],
    accept: Accept = "",
) -> Response:
    """Return the rows of a statement that the caller may see. It ends when its client goes."""
    mine = within(scope, asked.tenant)
    return await off_loop(lambda: written(services.sql.ask(asked.sql, mine), form.format, accept))


@router.get("/v1/sql/views")
def views(services: Shared, scope: Reader) -> ViewList:
    """Return the views, with their columns, units, and what may be computed of them."""
    denied = frozenset.intersection(*(box.denied_metrics for box in scope.boxes))
    return ViewList(views=[ViewAnswer(**view) for view in describe(services.catalog, denied)])


def within(scope: Scope, tenant_id: str) -> Scope:
    """Return what of a scope lies in one tenant, all of it where none is named.

    Raises:
        Rejected(no_grant): Nothing does.
    """
    if not tenant_id:
        return scope
    boxes = [replace(box, tenant_ids=(tenant_id,)) for box in scope.boxes if tenant_id in box.tenant_ids]
    found = united(boxes)
    if found is None:
        raise Rejected("no_grant", "you have no grant to read in that tenant", "ask an administrator for a grant")
    return found


async def off_loop(run: Callable[[], T]) -> T:
    """Run what blocks for long on a thread of its own, for the same asker."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_threads, context.run, run)
