"""Serve HTTP connections that are bounded: their number, and how long and large a request's head may be.

uvicorn bounds none of it. When there are too many, those of the tenants that have most of them go first, and of them
those that wait for no answer.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from secondsight.gateway.tls import names_of

HEAD_BYTES = 64 << 10
CALLER = "secondsight.caller"
"""Extension of a request's scope: whose connection it came over."""

CROWDED_SHARE = 0.75
"""From this share of the most connections on room is made."""


@dataclass(slots=True)
class Caller:
    """Whoever is at the other end of a connection.

    Attributes:
        names: In its certificate; None where it showed none.
        tenant_id: Of the token that it last showed; "" before the first.
    """

    names: tuple[str, ...] | None = None
    tenant_id: str = ""


class Connection(HttpToolsProtocol):
    """One connection. It is closed without an answer when a head is too long, or takes too long to come.

    Attributes:
        maximum: Connections that there may be; a further one is closed at once.
    """

    maximum = 1 << 30
    _head_since_seconds: float | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self.caller = Caller(names_of(transport.get_extra_info("peercert")))
        self._extensions: dict[str, dict[object, object]] = {CALLER: {CALLER: self.caller}}
        self._head_since_seconds = self.loop.time()
        if len(self.connections) > self.maximum:
            transport.close()

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
        self.scope["extensions"] = self._extensions
        self._head_bytes = 0
        if self._head_since_seconds is None:
            self._head_since_seconds = self.loop.time()

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        super().on_headers_complete()
        self._head_since_seconds = None

    @property
    def is_idle(self) -> bool:
        """Tell whether nobody waits for an answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def close_if_slow(self, head_timeout_seconds: float) -> None:
        """Close the connection when it has waited longer for a head."""
        since_seconds = self._head_since_seconds
        if since_seconds is not None and self.loop.time() - since_seconds > head_timeout_seconds:
            self.transport.close()


def bounded(maximum: int) -> type[Connection]:
    """Return the connections of a server that may have so many of them."""
    return type("BoundedConnection", (Connection,), {"maximum": maximum})


def by_tenant(connections: Iterable[Connection]) -> Counter[str]:
    """Return how many connections each tenant has; those that showed no token yet are of ""."""
    return Counter(connection.caller.tenant_id for connection in connections)


def surplus(connections: Iterable[Connection], counts: Counter[str], maximum: int) -> Iterator[Connection]:
    """Give the idle connections beyond each tenant's share of half of the maximum, once there is little room."""
    if counts.total() <= CROWDED_SHARE * maximum:
        return
    left = {tenant_id: count - maximum / 2 / len(counts) for tenant_id, count in counts.items()}
    for connection in connections:
        tenant_id = connection.caller.tenant_id
        if left[tenant_id] > 0 and connection.is_idle:
            left[tenant_id] -= 1
            yield connection
