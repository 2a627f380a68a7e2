"""Serve `POST /v1/events`."""

from collections.abc import Awaitable, Callable
from functools import partial

import orjson

from secondsight.access.identity import Identity
from secondsight.errors import Rejected
from secondsight.gateway.answer import STATUS, Answer
from secondsight.gateway.door import Door
from secondsight.gateway.events.body import Pieces, read_body
from secondsight.gateway.events.intake import EventIntake, Outcome
from secondsight.gateway.foreign.bodies import unpack
from secondsight.gateway.foreign.routes import OTLP_ENCODINGS, BodyLimits
from secondsight.gateway.frames import REJECTED_MAXIMUM
from secondsight.gateway.request import Body, Request
from secondsight.selfmetrics import SelfMetrics

LARGE_BYTES = 64 << 10
"""A larger body is read in a thread: others do not wait for it."""

Authenticate = Callable[[Request], Awaitable[Identity]]


class EventRoutes:
    """The route of events. Lives in one event loop."""

    def __init__(
        self,
        intake: EventIntake,
        authenticate: Authenticate,
        door: Door,
        limits: BodyLimits,
        metrics: SelfMetrics,
    ) -> None:
        self._intake = intake
        self._authenticate = authenticate
        self._door = door
        self._limits = limits
        self._metrics = metrics

    async def post_events(self, request: Request) -> Answer:
        """Take one event or a list of them; one alone that is refused answers with the status of its reason."""
        identity = await self._authenticate(request)
        entry = await self._door.open(identity, urgent=True)
        limits = self._limits
        with Body(self._door.pressure, limits.received_bytes, limits.timeout_seconds, entry) as body:
            content = await body.read(request)
            read = partial(_read, request, content, self._limits.unpacked_bytes)
            turns = self._door.turns
            pieces = await turns.run(entry, len(content), read) if len(content) > LARGE_BYTES else read()
            outcome = await self._intake.take(identity, entry, pieces.items)
        self._count(outcome, len(content))
        refused = outcome.rejected.get(0) if pieces.alone else None
        return _answer(outcome, refused)

    def _count(self, outcome: Outcome, body_bytes: int) -> None:
        self._metrics.count("gateway_body_bytes_total", body_bytes)
        for name, number in (("accepted", outcome.accepted), ("duplicate", outcome.duplicate)):
            if number:
                self._metrics.count("gateway_events_total", number, outcome=name)
        for error in outcome.rejected.values():
            self._metrics.count("gateway_events_total", outcome="refused")
            self._metrics.count("gateway_refused_items_total", code=error.code)


def _read(request: Request, content: bytes, limit_bytes: int) -> Pieces:
    headers = request.headers
    encoding = headers.get(b"content-encoding", b"").strip().lower().decode("latin-1")
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
    return read_body(unpack(content, encoding, OTLP_ENCODINGS, limit_bytes), content_type, headers)


def _answer(outcome: Outcome, refused: Rejected | None) -> Answer:
    listed = sorted(outcome.rejected.items())
    body: dict[str, object] = {
        "accepted": outcome.accepted,
        "duplicate": outcome.duplicate,
        "rejected": [
            {"index": place, "code": error.code, "message": error.message, "hint": error.hint}
            for place, error in listed[:REJECTED_MAXIMUM]
        ],
    }
    if len(listed) > REJECTED_MAXIMUM:
        body["rejectedMore"] = len(listed) - REJECTED_MAXIMUM
    if refused is None:
        return Answer(200, orjson.dumps(body))
    status = STATUS.get(refused.code, 400)
    body["error"] = {"code": refused.code, "message": refused.message, "hint": refused.hint}
    return Answer(status, orjson.dumps(body), refused_caller=refused.code if status == 403 else "")
