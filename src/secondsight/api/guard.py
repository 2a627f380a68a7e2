"""Stand before all routes: refuse what another site makes a browser send, count and audit, add safe headers.

Reads are put on record within a second of their answer, refusals of somebody known before it. HEAD is answered as GET
is: the server, which knows of it, leaves the body out.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from secondsight.access.audit import AuditEntry, AuditMark
from secondsight.access.identity import Identity
from secondsight.api.attempts import PLATFORM_TENANT
from secondsight.api.errors import answer
from secondsight.api.forward import App, Receive, Scope, Send
from secondsight.api.pages import SAFETY
from secondsight.api.services import Services
from secondsight.errors import Retryable
from secondsight.query.times import format_time

FLUSH_SECONDS = 0.5
DETAIL_LENGTH_MAXIMUM = 2_000
TRANSPORT = "max-age=31536000"
DURATION_BOUNDS_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
AUTH_FAILURES = frozenset({HTTPStatus.UNAUTHORIZED})
REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = _SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}
_SAFETY = [(name.lower().encode(), value.encode()) for name, value in SAFETY.items()]
_SAFETY_NAMES = frozenset(name for name, _ in _SAFETY)
_log = logging.getLogger(__name__)


class Guarded:
    """An ASGI application around another one; it never raises."""

    def __init__(self, inner: App, services: Services) -> None:
        self._inner = inner
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started = self._services.clock.monotonic_seconds()
        inner_scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope

        async def send_guarded(message: Scope) -> None:
            if message["type"] == "http.response.start":
                _guard(MutableHeaders(raw=message["headers"]), scope)
                await self._note(inner_scope, message["status"], started)
            await send(message)

        if is_foreign(scope):
            text, hint = "another site's page may not send this", "use the pages of this address, or a bearer token"
            refused = answer(HTTPStatus.FORBIDDEN, "cross_site", text, hint)
            await refused(scope, receive, send_guarded)
            return
        try:
            await self._inner(inner_scope, receive, send_guarded)
        except Exception:  # noqa: BLE001 - the edge: answered, logged and counted inside, raised again for servers
            self._services.selfmetrics.count("api_broken_answers_total")

    def leave(self) -> None:
        """Let those go who would stay for ever, as the server is about to stop."""
        self._services.feeds.stop()

    async def _note(self, scope: Scope, status: int, started: float) -> None:
        """Count an answer, and put on record who it is for."""
        metrics = self._services.selfmetrics
        seconds = self._services.clock.monotonic_seconds() - started
        route = route_of(scope)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        metrics.count("api_requests_total", method=method, route=route, status=str(status))
        metrics.observe("api_request_duration_seconds", seconds, DURATION_BOUNDS_SECONDS, route=route)
        if status in AUTH_FAILURES:
            metrics.count("api_auth_failures_total", reason=scope.get("state", {}).get("refusal", "other"))
        caller = scope.get("state", {}).get("caller")
        if caller is not None and (status in REFUSED or _is_read(scope)):
            await self._record(_entry(scope, caller, status, self._services.clock.now_ms()))

    async def _record(self, entry: AuditEntry) -> None:
        """Put an answer on record: a read with the next batch, anything else before it is sent."""
        audit = self._services.audit
        if entry.outcome == "ok" and audit.note(entry):
            return
        try:
            await asyncio.to_thread(audit.flush if entry.outcome == "ok" else partial(audit.record, entry))
        except Retryable as error:
            _log.warning("an entry waits to be put on record: %s", error)


async def flush_audit(services: Services, mark: AuditMark) -> None:
    """Write what was read every half second, until cancelled."""
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        try:
            await asyncio.to_thread(services.audit.flush)
            mark.written()
        except Retryable as error:
            services.selfmetrics.count("api_audit_delays_total")
            _log.warning("reads wait to be put on record: %s", error)


def tell_of_lost_reads(services: Services, mark: AuditMark) -> None:
    """Set the mark of this process, and put on record that another one was killed before it could write its last."""
    left_ms = mark.begin()
    if left_ms is None:
        return
    detail = f"an api was killed; what was read in the second after {format_time(left_ms)} may not be on record"
    _log.warning("%s", detail)
    services.selfmetrics.count("api_audit_gaps_total")
    with suppress(Retryable):
        services.audit.record(
            AuditEntry(services.clock.now_ms(), "platform:api", PLATFORM_TENANT, "audit_gap", "ok", detail)
        )


def is_foreign(scope: Scope) -> bool:
    """Tell whether a page of another site makes a browser send this; a bearer token is nothing that browsers add.

    Browsers say where an unsafe request comes from; whoever says nothing is no browser.
    """
    headers = Headers(scope=scope)
    if scope["method"] in _SAFE_METHODS or headers.get("authorization", "").lower().startswith("bearer "):
        return False
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def route_of(scope: Scope) -> str:
    """Return the template of the route that a request came to, "other" where it came to none."""
    path = getattr(scope.get("route"), "path", "other")
    return path if isinstance(path, str) else "other"


def _entry(scope: Scope, caller: Identity, status: int, now_ms: int) -> AuditEntry:
    state: dict[str, Any] = scope.get("state", {})
    outcome = "ok" if status < HTTPStatus.BAD_REQUEST else state.get("refusal", f"status_{status}")
    query = state.get("asked") or scope["query_string"].decode("latin-1")
    detail = f"{scope['path']}?{query}" if query else scope["path"]
    action = "read" if _is_read(scope) else scope["method"].lower()
    return AuditEntry(now_ms, caller.subject, caller.tenant_id, action, outcome, detail[:DETAIL_LENGTH_MAXIMUM])


def _is_read(scope: Scope) -> bool:
    """Tell whether a request only reads: some questions come as forms."""
    return scope["method"] == "GET" or "asked" in scope.get("state", {})


def _guard(headers: MutableHeaders, scope: Scope) -> None:
    raw = headers.raw
    raw[:] = [pair for pair in raw if pair[0] not in _SAFETY_NAMES]
    raw += _SAFETY
    if scope["scheme"] == "https":
        headers["Strict-Transport-Security"] = TRANSPORT
    if scope["path"].startswith(("/v1/", "/api/v1/")):
        headers.setdefault("Cache-Control", "no-store")
