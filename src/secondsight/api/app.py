"""Put the routes of the read API together into one ASGI application."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware

from secondsight.api import deadletters, debug, events, gaps, ledger, operations, places, reference, series, session
from secondsight.api.errors import handle_errors
from secondsight.api.forward import App, Forward, Receive, Scope, Send
from secondsight.api.models import ErrorAnswer
from secondsight.api.pages import SAFETY, page_routes, static_folder
from secondsight.api.services import Services

GZIP_FROM_BYTES = 2_000
GZIP_LEVEL = 1

_DESCRIPTION = """Every answer says how good it is. Times are RFC 3339, epoch milliseconds, or relative (`now-15m`).
Sign in with `Authorization: Bearer TOKEN`, or with the session cookie that `POST /v1/session` gives."""


def make_app(services: Services) -> App:
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
    for module in (series, places, reference, session, debug, gaps, ledger, events, deadletters, operations):
        app.include_router(module.router)
    app.include_router(page_routes(static_folder(services.config.static)))
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_FROM_BYTES, compresslevel=GZIP_LEVEL)
    return app


class Guarded:
    """Adds to every answer what keeps browsers from misusing it, and counts the answer.

    HEAD is answered as GET is: the server, which knows of it, leaves the body out.
    """

    def __init__(self, inner: App, services: Services) -> None:
        self._inner = inner
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started = self._services.clock.monotonic_seconds()

        async def send_guarded(message: Scope) -> None:
            if message["type"] == "http.response.start":
                _guard(MutableHeaders(raw=message["headers"]), scope["path"])
                self._count(message["status"], started)
            await send(message)

        try:
            inner_scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
            await self._inner(inner_scope, receive, send_guarded)
        except Exception:  # noqa: BLE001 - the edge: answered, logged and counted inside, raised again for servers
            self._services.selfmetrics.count("api_broken_answers_total")

    def _count(self, status: int, started: float) -> None:
        seconds = self._services.clock.monotonic_seconds() - started
        self._services.selfmetrics.count("api_requests_total", status=str(status))
        self._services.selfmetrics.count("api_request_seconds_total", seconds)


def _guard(headers: MutableHeaders, path: str) -> None:
    headers.update(SAFETY)
    if path.startswith("/v1/"):
        headers.setdefault("Cache-Control", "no-store")


def _closing(services: Services) -> Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, object]]]:
    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[Mapping[str, object]]:
        yield {}
        services.store.close()
        services.metadata.dispose()

    return live
