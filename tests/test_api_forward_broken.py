"""A gateway that is killed in the middle of a body is away: senders are told to come back."""

import asyncio

import pytest
import uvloop

from secondsight.api.forward import Forward
from secondsight.clock import SystemClock

PIECES = 8


async def answers_of(piece_seconds: float) -> list[dict]:
    sent: list[dict] = []
    pieces = iter(range(PIECES))

    async def break_off(reader, writer):
        await reader.read(1)
        writer.transport.abort()

    async def receive():
        await asyncio.sleep(piece_seconds)
        number = next(pieces)
        return {"type": "http.request", "body": b"x" * 1000, "more_body": number < PIECES - 1}

    async def send(message):
        sent.append(message)

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    forward = Forward(send, f"http://127.0.0.1:{port}", clock=SystemClock(), body_bytes=1 << 20, patience_seconds=20)
    scope = {"type": "http", "method": "POST", "path": "/v1/frames", "query_string": b"", "headers": []}
    await forward(scope, receive, send)
    server.close()
    return sent


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("piece_seconds", [0.0, 0.02])
def test_a_gateway_that_breaks_off_within_a_body_is_away(loop, piece_seconds):
    with asyncio.Runner(loop_factory=loop) as runner:
        start, body = runner.run(answers_of(piece_seconds))
    assert start["status"] == 503
    assert b"retry-after" in dict(start["headers"])
    assert b"gateway_away" in body["body"]
