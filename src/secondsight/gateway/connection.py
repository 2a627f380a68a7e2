"""Serve HTTP connections that are bounded: their number, and how long and large a request's head may be.

uvicorn bounds none of it. When there are too many, those of the tenants that have most of them go first, and of them
those that wait for no answer.

Nearly all requests are posts of frames that arrive in one piece, or head and body in one each, and whose head is that
of the post before but for its length. Such a post is handed to the application as it is, without what ASGI and another
parse of the head would cost.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from secondsight.gateway.tls import names_of
from secondsight.gateway.whole import PATH, KnownHead, learnt

HEAD_BYTES = 64 << 10
WAIT_SECONDS = 1.0
"""A body that comes later than so long after its head is waited for by a task that bounds it."""

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
        shown: How it last showed a token, as the header says it, and `digest_of` that token.
    """

    names: tuple[str, ...] | None = None
    tenant_id: str = ""
    shown: tuple[bytes, bytes] = (b"", b"")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a whole post came from: the address of the other end, "" when unknown, and whose connection it is."""

    address: str
    caller: Caller


class Application(Protocol):
    """What an application has that takes whole posts."""

    def post_whole(self, head: KnownHead, body: bytes, origin: Origin, answered: Callable[[bytes], None]) -> None:
        """Take a post of frames; `answered` gets the bytes of its answer, or none where it failed."""
        ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A known head that came alone: its bytes, those of its body, and when it came."""

    head: bytes
    body_bytes: int
    since_seconds: float


class _Post:
    """Stands for a whole post until it is answered, where uvicorn looks for a request that it runs itself."""

    __slots__ = ("_connection", "disconnected", "keep_alive", "response_complete")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.response_complete = False
        self.keep_alive = True
        self.disconnected = False

    @property
    def message_event(self) -> "_Post":
        """Return what is told when the other end is gone."""
        return self

    def set(self) -> None:
        """Go on: nobody waits for the other end here."""

    def answered(self, answer: bytes) -> None:
        """Send the answer."""
        self.response_complete = True
        if not self.disconnected:
            self._connection.send_answer(answer, keep_alive=self.keep_alive)


class Connection(HttpToolsProtocol):
    """One connection. It is closed without an answer when a head is too long, or takes too long to come.

    Attributes:
        maximum: Connections that there may be; a further one is closed at once.
    """

    maximum = 1 << 30
    _head_since_seconds: float | None = None
    _head_bytes = 0
    _idle_since_seconds: float | None = None
    _known: KnownHead | None = None
    _waiting: _Waiting | None = None
    _is_between = True
    _read = b""
    _pieces: list[bytes] | None = None
    """Of the body of a post that may be there as a whole; None where uvicorn runs the request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self.caller = Caller(names_of(transport.get_extra_info("peercert")))
        self._origin = Origin(self.client[0] if self.client else "", self.caller)
        self._extensions: dict[str, dict[object, object]] = {CALLER: {CALLER: self.caller}}
        self._head_since_seconds = self.loop.time()
        if len(self.connections) > self.maximum:
            transport.close()

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        self._idle_since_seconds = None
        if self._waiting is not None:
            if len(data) == self._waiting.body_bytes and self._known is not None:
                self._waiting = None
                self._take(self._known, data)
                return
            self._wait_no_more()
        elif self._known is not None and self._is_between and self.is_idle and self._is_post(self._known, data):
            return
        self._parse(data)

    def _is_post(self, known: KnownHead, data: bytes) -> bool:
        """Tell whether bytes are a post with a known head, and answer it or wait for its body."""
        found = known.body_at(data)
        if found is None:
            return False
        begin, body_bytes = found
        if len(data) - begin == body_bytes:
            self._take(known, data[begin:])
        elif len(data) == begin:
            self._waiting = _Waiting(data, body_bytes, self.loop.time())
        else:
            return False
        return True

    def _parse(self, data: bytes) -> None:
        self._read = data if self._is_between else b""
        super().data_received(data)
        if self._pieces is not None:
            self._go_the_long_way()
        self._read = b""
        if self._head_since_seconds is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.close()

    def _wait_no_more(self) -> None:
        """Have uvicorn run a request whose body does not come at once."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._parse(waiting.head)

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions
        self._is_between = False
        self._head_bytes = 0
        if self._head_since_seconds is None:
            self._head_since_seconds = self.loop.time()

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        self._head_since_seconds = None
        if self._may_be_whole():
            self._pieces = []
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        if self._pieces is None:
            super().on_body(body)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        """Answer a post that is there as a whole."""
        self._is_between = True
        if self._pieces is None:
            super().on_message_complete()
            return
        pieces, self._pieces = self._pieces, None
        headers = dict(self.headers)
        self._known = learnt(self._read, headers)
        self._take(self._known or KnownHead(b"", b"", headers), b"".join(pieces))

    def send_answer(self, answer: bytes, *, keep_alive: bool) -> None:
        """Send the answer to a whole post; none where it failed beyond all answers."""
        if self.transport.is_closing():
            return
        if not keep_alive:
            status, _, rest = answer.partition(b"\r\n")
            answer = status + b"\r\nconnection: close\r\n" + rest
        self.transport.write(answer)
        if not (keep_alive and answer):
            self.transport.close()
        elif self.pipeline:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self._idle_since_seconds = self.loop.time()

    @property
    def is_idle(self) -> bool:
        """Tell whether nobody waits for an answer."""
        cycle: RequestResponseCycle | _Post | None = self.cycle
        return cycle is None or cycle.response_complete

    def close_if_slow(self, now: float, head_timeout_seconds: float) -> None:
        """Close the connection when it has waited longer for a head, or too long for another post."""
        head_since, idle_since = self._head_since_seconds, self._idle_since_seconds
        if head_since is not None and now - head_since > head_timeout_seconds:
            self.transport.close()
        if idle_since is not None and now - idle_since > self.timeout_keep_alive:
            self.transport.close()
        if self._waiting is not None and now - self._waiting.since_seconds > WAIT_SECONDS:
            self._wait_no_more()

    def _may_be_whole(self) -> bool:
        parser = self.parser
        return (
            self.url == PATH
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and self.is_idle
            and hasattr(self.app, "post_whole")
        )

    def _go_the_long_way(self) -> None:
        """Have uvicorn run a request of whose body more is to come."""
        self._known = learnt(self._read, dict(self.headers))
        pieces, self._pieces = self._pieces or [], None
        super().on_headers_complete()
        for piece in pieces:
            super().on_body(piece)

    def _take(self, head: KnownHead, body: bytes) -> None:
        self._unset_keepalive_if_required()
        post = _Post(self)
        self.cycle = post  # type: ignore[assignment]  # all that uvicorn looks at
        app: Application = self.app
        app.post_whole(head, body, self._origin, post.answered)


def bounded(maximum: int) -> type[Connection]:
    """Return the connections of a server that may have so many of them."""
    return type("BoundedConnection", (Connection,), {"maximum": maximum})


def by_tenant(connections: Iterable[Connection]) -> Counter[str]:
    """Return how many connections each tenant has; those that showed no token yet are of ""."""
    return Counter([connection.caller.tenant_id for connection in connections])


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
