"""Serve HTTP connections whose request heads are bounded in time and size; uvicorn bounds neither."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from secondsight.gateway.tls import names_of

HEAD_BYTES = 64 << 10
PEER = "secondsight.peer"
"""Extension of a request's scope with the names of its sender's certificate; not there where it showed none."""


class Connection(HttpToolsProtocol):
    """One connection. It is closed without an answer when a head is too long, or takes too long to come."""

    _head_since_seconds: float | None = None
    _head_bytes = 0
    _peer: tuple[str, ...] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._peer = names_of(transport.get_extra_info("peercert"))
        self._head_since_seconds = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        super().data_received(data)
        if self._head_since_seconds is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.close()

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        super().on_message_begin()
        if self._peer is not None:
            self.scope["extensions"] = {PEER: {"names": self._peer}}
        self._head_bytes = 0
        if self._head_since_seconds is None:
            self._head_since_seconds = self.loop.time()

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        super().on_headers_complete()
        self._head_since_seconds = None

    def close_if_slow(self, head_timeout_seconds: float) -> None:
        """Close the connection when it has waited longer for a head."""
        since_seconds = self._head_since_seconds
        if since_seconds is not None and self.loop.time() - since_seconds > head_timeout_seconds:
            self.transport.close()
