"""Serve `POST /v1/events`."""

from functools import partial

import orjson

from secondsight.errors import Rejected
from secondsight.gateway.answer import STATUS, Answer
from secondsight.gateway.events.body import Pieces, read_body
from secondsight.gateway.events.intake import EventIntake, Outcome
from secondsight.gateway.foreign.bodies import HTTP_ENCODINGS, unpack
from secondsight.gateway.frames import REJECTED_MAXIMUM
from secondsight.gateway.front import Front
from secondsight.gateway.request import Request

LARGE_BYTES = 64 << 10
"""A larger body is read in a thread: others do not wait for it."""


class EventRoutes:
    """The route of events. Lives in one event loop."""

    def __init__(self, intake: EventIntake, front: Front) -> None:
        self._intake = intake
        self._front = front

    async def post_events(self, request: Request) -> Answer:
        """Take one event or a list of them; one alone that is refused answers with the status of its reason."""
        front = self._front
        identity = await front.authenticate(request)
        entry = await front.door.open(identity, urgent=True)
        with front.body(entry) as body:
            content = await body.read(request)
            read = partial(_read, request, content, front.limits.unpacked_bytes)
            turns = front.door.turns
            pieces = await turns.run(entry, len(content), read) if len(content) > LARGE_BYTES else read()
            outcome = await self._intake.take(identity, entry, pieces.items)
        self._count(outcome, len(content))
        refused = outcome.rejected.get(0) if pieces.alone else None
        return _answer(outcome, refused)

    def _count(self, outcome: Outcome, body_bytes: int) -> None:
        count = self._front.metrics.count
        count("gateway_body_bytes_total", body_bytes)
        for name, number in (("accepted", outcome.accepted), ("duplicate", outcome.duplicate)):
            if number:
                count("gateway_events_total", number, outcome=name)
        for error in outcome.rejected.values():
            count("gateway_events_total", outcome="refused")
            count("gateway_refused_items_total", code=error.code)


def _read(request: Request, content: bytes, limit_bytes: int) -> Pieces:
    body = unpack(content, request.header(b"content-encoding"), HTTP_ENCODINGS, limit_bytes)
    return read_body(body, request.media_type(), request.headers)


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
