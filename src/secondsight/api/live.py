"""Serve what happens now as server-sent events: a snapshot, then what changed, resumed by the id of the last event.

A client that reads slowly gets fewer and larger differences, never a queue; one that reads nothing for long is let go.
Every few seconds it is looked up again whether the client may still see what it sees.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from secondsight.access.scope import Scope
from secondsight.api.feed import Coding, Feed, Form, Watched, encoded
from secondsight.api.models import ErrorAnswer
from secondsight.api.parameters import Names, Parameters, words_of
from secondsight.api.services import Caller, Reader, Services, Shared, authenticated, scope_now
from secondsight.errors import Rejected, Retryable
from secondsight.query.board import checked_metrics
from secondsight.query.cache import anyone
from secondsight.query.fleet import NOW_METRICS
from secondsight.query.request import parse_filters

STREAM = "text/event-stream"
PIECE_BYTES = 16 << 10
"""Answers are handed over in pieces, so that what waits for a slow client is one of them."""
QUIET_SECONDS = 5.0
"""After so long without an event the client is looked up again, and told that the stream is alive."""
RETRY_MS = 2_000

router = APIRouter(tags=["live"], responses={code: {"model": ErrorAnswer} for code in (400, 422, 429)})


class LiveParameters(Parameters):
    """What is watched."""

    metrics: Annotated[Names, Field(description="Figures of GPUs as a whole; by default those that lists show.")] = ""
    cluster: Names = ""
    host: Names = ""
    gpu: Names = ""
    coding: Annotated[
        Coding, Field(description="`bytes` gives frames of one byte a cell, as the map, and exact sums of each metric.")
    ] = Coding.NUMBERS
    layout: Annotated[str, Field(max_length=64, description="Name of a layout whose cells the caller has.")] = ""


@router.get(
    "/v1/live",
    response_class=StreamingResponse,
    responses={200: {"content": {STREAM: {"schema": {"type": "string"}}}}},
)
async def live(
    request: Request,
    services: Shared,
    caller: Caller,
    scope: Reader,
    asked: Annotated[LiveParameters, Query()],
    last_event_id: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """Return events `snapshot` and `delta`, one a second at most; `end` says why the stream is over."""
    watched = _watched(services, scope, asked)
    form = Form(asked.coding, asked.layout)
    services.feeds.check_room(caller.tenant_id)
    viewer = _Viewer(request, services, watched.scope)

    async def events() -> AsyncIterator[bytes]:
        async with services.feeds.watch(watched, caller.tenant_id) as feed:
            async for piece in _events(feed, viewer, last_event_id, form):
                yield piece

    return StreamingResponse(events(), media_type=STREAM, headers={"X-Accel-Buffering": "no"})


class _Viewer:
    """Knows whether who opened a stream may still see it."""

    def __init__(self, request: Request, services: Services, scope: Scope) -> None:
        self._request = request
        self._services = services
        self._scope = anyone(scope)
        self._checked_seconds = services.clock.monotonic_seconds()

    async def end(self) -> str:
        """Return why the stream is over, or "" while it is not; looks anew every few seconds."""
        if self._services.feeds.is_stopping:
            return "stopping"
        now = self._services.clock.monotonic_seconds()
        if now - self._checked_seconds < QUIET_SECONDS:
            return ""
        self._checked_seconds = now
        return await asyncio.to_thread(self._end)

    def _end(self) -> str:
        try:
            identity = authenticated(self._request, self._services)
            scope = scope_now(identity, self._services)
        except Rejected as error:
            return error.code
        except Retryable:
            return "unavailable"
        return "" if anyone(scope) == self._scope else "grants_changed"


async def _events(feed: Feed, viewer: _Viewer, last_event_id: str, form: Form) -> AsyncIterator[bytes]:
    has = feed.number_of(last_event_id)
    yield b"retry: %d\n\n" % RETRY_MS
    while True:
        changed = feed.changed
        reason = await viewer.end()
        if reason:
            yield encoded("end", "", {"reason": reason}).replace(b"id: \n", b"")
            return
        found = feed.next_for(has, form)
        if found is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SECONDS):
                    await changed.wait()
                continue
            yield b": %b\n\n" % (feed.trouble or "alive").encode()
            continue
        has, text = found
        for start in range(0, len(text), PIECE_BYTES):
            yield text[start : start + PIECE_BYTES]


def _watched(services: Services, scope: Scope, asked: LiveParameters) -> Watched:
    names = words_of(asked.metrics) or tuple(name for name in NOW_METRICS if scope.shows(name))
    metrics = checked_metrics([services.catalog.resolve(name) for name in dict.fromkeys(names)])
    for metric in metrics:
        scope.showing(metric.name)
    filters = parse_filters({"cluster": asked.cluster, "host": asked.host, "gpu": asked.gpu})
    return Watched(metrics, filters, scope)
