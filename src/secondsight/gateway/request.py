"""Read what a handler needs of an ASGI request: its token, its type, its bounded body."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

from secondsight.access.tokens import digest_of
from secondsight.errors import Rejected
from secondsight.gateway.connection import Caller
from secondsight.gateway.pressure import Pressure
from secondsight.gateway.shares import NOBODY, Entry

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Disconnected(Exception):
    """The sender went away before its body was complete."""


class Request(NamedTuple):
    """One HTTP request.

    Attributes:
        headers: Lower-case name -> last value.
        received_ms: Gateway's clock when the headers were there.
        address: Of the other end; "" when unknown.
        caller: Whose connection it came over.
        whole: Its body, where that was there with the headers.
    """

    method: str
    path: str
    query: bytes
    headers: Mapping[bytes, bytes]
    receive: Receive
    received_ms: int
    address: str
    caller: Caller
    whole: bytes | None = None

    def bearer(self) -> str:
        """Return the bearer secret, or "" where there is none."""
        scheme, _, secret = self.headers.get(b"authorization", b"").partition(b" ")
        return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""

    def digest(self) -> bytes:
        """Return what is stored of the bearer secret; the requests of a connection mostly show the same.

        Raises:
            Rejected(token_missing, token_invalid): No secret is like this.
        """
        shown = self.headers.get(b"authorization", b"")
        if shown != self.caller.shown[0] or not shown:
            self.caller.shown = (shown, digest_of(self.bearer()))
        return self.caller.shown[1]

    def header(self, name: bytes) -> str:
        """Return a header in lower case, "" where there is none."""
        return self.headers.get(name, b"").decode("latin-1").strip().lower()

    def media_type(self) -> str:
        """Return what the body claims to be, without parameters."""
        return self.header(b"content-type").partition(";")[0].strip()

    def require_content(self, content_type: bytes) -> None:
        """Check what the body claims to be.

        Raises:
            Rejected(content_type, content_encoding)
        """
        told = self.headers.get(b"content-type", b"")
        if told != content_type and told.partition(b";")[0].strip().lower() != content_type:
            raise Rejected("content_type", f"the body is not {content_type.decode()}", "set Content-Type to it")
        if self.headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            raise Rejected("content_encoding", "frames are compressed by themselves", "send no Content-Encoding")


class Body:
    """Holds the bytes of one request within two bounds: its own, and that of all requests together.

    Use as a context manager; the request and its bytes count as held until it ends.

    Args:
        pressure: Counts what all requests hold.
        limit_bytes: Of this body.
        timeout_seconds: Until it is complete.
        entry: Whose it is.
    """

    def __init__(self, pressure: Pressure, limit_bytes: int, timeout_seconds: float, entry: Entry = NOBODY) -> None:
        self._pressure = pressure
        self._entry = entry
        self._limit_bytes = limit_bytes
        self._timeout_seconds = timeout_seconds
        self._held_bytes = 0

    def __enter__(self) -> "Body":
        self._pressure.enter(self._entry)
        return self

    def __exit__(self, *_: object) -> None:
        self._pressure.leave(self._entry, self._held_bytes)

    async def read(self, request: Request) -> bytes:
        """Return the whole body. What exceeds a bound is refused at once and never kept.

        Raises:
            Rejected(body_too_large, body_timeout), Overloaded, Disconnected
        """
        if request.whole is not None:
            self._hold(request.whole)
            return request.whole
        announced = request.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._limit_bytes:
            raise self._too_large(int(announced))
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._gather(request.receive)
        except TimeoutError as error:
            message = f"the body was not complete after {self._timeout_seconds:g} s"
            raise Rejected("body_timeout", message, "send it again") from error

    async def _gather(self, receive: Receive) -> bytes:
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            piece = message.get("body", b"")
            self._hold(piece)
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _hold(self, piece: bytes) -> None:
        if self._held_bytes + len(piece) > self._limit_bytes:
            raise self._too_large(self._held_bytes + len(piece))
        self._held_bytes += len(piece)
        self._pressure.take(self._entry, len(piece))

    def _too_large(self, body_bytes: int) -> Rejected:
        message = f"the body has {body_bytes} bytes or more, and the limit is {self._limit_bytes}"
        return Rejected("body_too_large", message, "send fewer frames at once")
