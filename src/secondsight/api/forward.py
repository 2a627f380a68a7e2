"""Pass ingest requests on to the gateway, so that one address serves everything; bodies stream both ways.

Plain asyncio, one connection per request: senders that count use the gateway's own address.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any
from urllib.parse import urlsplit

import orjson

from secondsight.clock import Clock
from secondsight.errors import Rejected
from secondsight.gateway.returns import Returns

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONNECT_SECONDS = 5.0
CHUNK_BYTES = 1 << 16
HEAD_BYTES = 1 << 16
RETRY_AFTER_SECONDS, RETURNS_PER_SECOND = 5.0, 200.0
"""When senders come back at the earliest that found no gateway, and how many of them in one second: a gateway's own."""

_POSTS = frozenset(
    {
        "/v1/frames",
        "/v1/metrics",
        "/api/v1/write",
        "/v1/events",
        "/v1/agents/enroll",
        "/v1/deadletters/replay",
        "/v1/log/replay",
    }
)
_PLAN = re.compile(r"/v1/agents/[^/]+/plan")
_HOP = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"proxy-authorization", b"host"}
)
_BODILESS = frozenset({204, 304})
_DROPPED = _HOP | {b"cookie", b"content-length", b"expect"}


OWN_BODY_BYTES = 1 << 20
"""Largest body of a request that is not passed on."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a gateway listens."""

    host: str
    port: int


class _TooLarge(Exception):
    """The body is larger than what is passed on."""


class _Away(Exception):
    """The gateway does not answer, or broke off."""


class Forward:
    """An ASGI application that passes ingest requests on and leaves all others to the one inside it."""

    def __init__(self, inner: App, gateway: str, *, clock: Clock, body_bytes: int, patience_seconds: float) -> None:
        self._inner = inner
        self._returns = Returns(clock)
        self._target = parse_target(gateway)
        self._body_bytes = body_bytes
        self._patience_seconds = patience_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not is_ingest(scope["method"], scope["path"]):
            await self._inner(scope, _bounded(receive, OWN_BODY_BYTES), send)
            return
        if self._target is None:
            await _refuse(send, 404, "not_found", "this api passes nothing on", "send to the gateway's address")
            return
        try:
            async with asyncio.timeout(self._patience_seconds):
                await self._pass_on(self._target, scope, receive, send)
        except _TooLarge:
            await _refuse(
                send, 413, "body_too_large", f"the body has over {self._body_bytes} bytes", "send less at once"
            )
        except (_Away, TimeoutError):
            later = self._returns.after(RETRY_AFTER_SECONDS, 1 / RETURNS_PER_SECOND)
            message, hint = "the gateway does not answer", "keep the data and try again"
            await _refuse(send, 503, "gateway_away", message, hint, (b"retry-after", b"%d" % ceil(later)))

    async def _pass_on(self, target: Target, scope: Scope, receive: Receive, send: Send) -> None:
        async with _connected(target) as (reader, writer):
            await _put(writer, _head(scope, target))
            async for chunk in _body(receive, self._body_bytes):
                await _put(writer, b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await _put(writer, b"0\r\n\r\n")
            await _answer(reader, send)


def is_ingest(method: str, path: str) -> bool:
    """Tell whether a request is the gateway's."""
    return path in _POSTS if method == "POST" else method == "GET" and _PLAN.fullmatch(path) is not None


def parse_target(gateway: str) -> Target | None:
    """Return host and port of `http://HOST:PORT`, None for "".

    Raises:
        Rejected(bad_config): It is no such address.
    """
    if not gateway:
        return None
    parts = urlsplit(gateway)
    if parts.scheme != "http" or not parts.hostname or not parts.port:
        raise Rejected("bad_config", f"api.gateway: {gateway!r} is not http://HOST:PORT")
    return Target(parts.hostname, parts.port)


@asynccontextmanager
async def _connected(target: Target) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(target.host, target.port, limit=HEAD_BYTES)
    except OSError as error:
        raise _Away from error
    try:
        yield reader, writer
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise _Away from error
    finally:
        writer.close()


async def _put(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send bytes, as far as the gateway is still there: some loops raise `RuntimeError` when it is not."""
    if writer.is_closing():
        raise _Away
    writer.write(data)
    await writer.drain()


def _head(scope: Scope, target: Target) -> bytes:
    """Return the request's head; hop-by-hop headers and cookies stay here.

    The connection is kept alive: a gateway that refuses before it has read the body then reads on, where it would
    otherwise reset the connection and its answer would be lost.
    """
    path = scope.get("raw_path") or scope["path"].encode()
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    lines = [
        b"%b %b%b HTTP/1.1" % (scope["method"].encode(), path, query),
        b"host: %b:%d" % (target.host.encode(), target.port),
    ]
    lines += [b"%b: %b" % (name, value) for name, value in scope["headers"] if name not in _DROPPED]
    return b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", b""])


def _bounded(receive: Receive, most_bytes: int) -> Receive:
    """Return a `receive` after whose most bytes the sender counts as gone."""
    taken_bytes = 0

    async def receive_bounded() -> Scope:
        nonlocal taken_bytes
        message = await receive()
        taken_bytes += len(message.get("body", b""))
        return message if taken_bytes <= most_bytes else {"type": "http.disconnect"}

    return receive_bounded


async def _body(receive: Receive, most_bytes: int) -> AsyncIterator[bytes]:
    total_bytes = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Away
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        total_bytes += len(chunk)
        if total_bytes > most_bytes:
            raise _TooLarge
        if chunk:
            yield chunk


async def _answer(reader: asyncio.StreamReader, send: Send) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *lines = head[:-4].split(b"\r\n")
    pairs = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    chunked = any(name == b"transfer-encoding" and value.lower() == b"chunked" for name, value in pairs)
    length = next((int(value) for name, value in pairs if name == b"content-length"), None)
    status = int(status_line.split(b" ")[1])
    if status in _BODILESS:
        length = 0
    kept = [pair for pair in pairs if pair[0] not in _HOP]
    await send({"type": "http.response.start", "status": status, "headers": kept})
    async for chunk in _chunks(reader) if chunked else _plain(reader, length):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _plain(reader: asyncio.StreamReader, length: int | None) -> AsyncIterator[bytes]:
    left = length
    while left is None or left > 0:
        chunk = await reader.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
        if not chunk:
            return
        left = None if left is None else left - len(chunk)
        yield chunk


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


async def _refuse(
    send: Send, status: int, code: str, message: str, hint: str, *more_headers: tuple[bytes, bytes]
) -> None:
    body = orjson.dumps({"error": {"code": code, "message": message, "hint": hint}})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *more_headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
