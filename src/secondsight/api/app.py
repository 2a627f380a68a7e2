"""Put the routes of the read API together into one ASGI application."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from secondsight.access.audit import AuditMark
from secondsight.api import (
    administration,
    ask,
    deadletters,
    debug,
    events,
    fleetmap,
    gaps,
    gpucolumns,
    ladder,
    ledger,
    live,
    operations,
    people,
    places,
    prometheus,
    questions,
    reference,
    series,
    session,
    signin,
    sql,
)
from secondsight.api.attend import Attended
from secondsight.api.errors import handle_errors
from secondsight.api.forward import Forward
from secondsight.api.guard import Guarded, flush_audit, tell_of_lost_reads
from secondsight.api.models import ErrorAnswer
from secondsight.api.pages import page_routes, static_folder
from secondsight.api.services import Services
from secondsight.api.tagged import Tagged
from secondsight.errors import Retryable
from secondsight.live.run import Following

AUDIT_MARK = "audit.open"
"""File in the folder of the platform, while an api runs."""
GZIP_FROM_BYTES = 2_000
GZIP_LEVEL = 1

_MODULES = (
    series,
    prometheus,
    places,
    reference,
    session,
    signin,
    debug,
    gaps,
    ledger,
    events,
    deadletters,
    fleetmap,
    gpucolumns,
    live,
    ladder,
    administration,
    people,
    sql,
    ask,
    questions,
    operations,
)
_DESCRIPTION = """Every answer says how good it is. Times are RFC 3339, epoch milliseconds, or relative (`now-15m`).
Sign in with `Authorization: Bearer TOKEN`, or with the session cookie that `POST /v1/session` gives."""


def make_app(services: Services) -> Guarded:
    """Return the application: routes, pages, what passes ingest on, and the headers of every answer."""
    inner = make_routes(services)
    forward = Forward(
        inner,
        services.config.gateway,
        clock=services.clock,
        body_bytes=services.config.forward_bytes,
        patience_seconds=services.config.forward_seconds,
    )
    return Guarded(forward, services)


def make_routes(services: Services) -> FastAPI:
    """Return the routes alone, as `/openapi.json` describes them."""
    app = FastAPI(
        title="Secondsight",
        version="1",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses={code: {"model": ErrorAnswer} for code in (401, 403, 503)},
        lifespan=_closing(services),
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.services = services
    handle_errors(app, services.selfmetrics)
    for module in _MODULES:
        app.include_router(module.router)
    app.include_router(page_routes(static_folder(services.config.static)))
    app.add_middleware(Tagged)
    app.add_middleware(Attended)
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_FROM_BYTES, compresslevel=GZIP_LEVEL)
    return app


def _closing(services: Services) -> Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, object]]]:
    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[Mapping[str, object]]:
        mark = AuditMark(services.config.data / AUDIT_MARK)
        await asyncio.to_thread(tell_of_lost_reads, services, mark)
        flushing = asyncio.create_task(flush_audit(services, mark))
        following = None if services.live is None else Following(services.live)
        yield {}
        await services.feeds.close()
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        with suppress(Retryable):
            services.audit.close()
            mark.end()
        if following is not None:
            await asyncio.to_thread(following.close)
        services.store.close()
        services.metadata.dispose()

    return live
