"""Turn a request into an answer over one kept-alive connection, with a deadline and a limit on the answer's size.

Requests are for one thread. Only what the agent needs: GET of expositions and POST of frames, TLS with a CA file, a
proxy, gzip answers.
"""

import base64
import contextlib
import http.client
import io
import re
import socket
import ssl
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

from secondsight.clock import Clock
from secondsight.errors import Permanent, Rejected, Retryable

CHUNK_BYTES = 64 * 1024
REASON_CHARACTERS = 200

_SENDABLE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*").fullmatch
_STALE_CONNECTION = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One connection to one server, opened when needed and again after any fault. `close()` may be called twice."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        ca_file: Path | None = None,
        proxy: str = "",
        client: "ClientCertificate | None" = None,
    ) -> None:
        """Make one; nothing is opened yet.

        Args:
            url: Address of the server; its path does not matter.
            clock: For deadlines.
            ca_file: Certificates to trust instead of the system's.
            proxy: `http://[USER:PASSWORD@]HOST:PORT` to go through; "" for none.
            client: What shows the server who asks; None for nothing. Its files may be replaced.

        Raises:
            Rejected: `bad_url`; what may be a password is not repeated.
        """
        self._client = client
        parts = _parts_of(url)
        self._host, self._port, self._clock = parts.hostname or "", parts.port, clock
        self._proxy = parse_proxy(proxy) if proxy else None
        self._tls = _tls_context(ca_file) if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None
        self._deadline = 0.0

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        *,
        timeout_seconds: float,
        limit_bytes: int,
        body: bytes = b"",
    ) -> Answer:
        """Send one request and read the whole answer.

        Args:
            method: GET or POST.
            target: Path with query.
            headers: Sent as they are.
            timeout_seconds: For all of it together.
            limit_bytes: Most bytes of the answer, unpacked.
            body: Sent where not empty.

        Raises:
            Retryable: The server is away, too slow, or broke off; a header cannot be sent, as a token of two lines.
            Rejected: `body_too_large`, `bad_encoding`.
        """
        _require_sendable(headers)
        self._deadline = self._clock.monotonic_seconds() + timeout_seconds
        try:
            return self._exchange(method, target, headers, body, limit_bytes)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Retryable(f"{method} {self._where()}: {_describe(error)}") from error
        except Permanent:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another. From another thread it ends a request under way."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()

    def _exchange(self, method: str, target: str, headers: Mapping[str, str], body: bytes, limit_bytes: int) -> Answer:
        fresh = self._connection is None
        try:
            return self._once(method, target, headers, body, limit_bytes)
        except _STALE_CONNECTION:
            self.close()
            if fresh:
                raise
        return self._once(method, target, headers, body, limit_bytes)

    def _once(self, method: str, target: str, headers: Mapping[str, str], body: bytes, limit_bytes: int) -> Answer:
        connection = self._open(self._left())
        if self._proxy is not None and self._tls is None:
            target = f"http://{_address(self._host, self._port)}{target}"
            headers = {**headers, **self._proxy.headers}
        connection.request(method, target, body=body or None, headers=dict(headers))
        response = connection.getresponse()
        raw = self._read(response, limit_bytes)
        found = {name.lower(): value for name, value in response.getheaders()}
        if response.will_close:
            self.close()
        return Answer(response.status, found, _unpacked(raw, found.get("content-encoding", ""), limit_bytes))

    def _open(self, timeout_seconds: float) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._tls is not None and self._client is not None:
                self._client.load(self._tls)
            proxy = self._proxy
            host, port = (self._host, self._port) if proxy is None else (proxy.host, proxy.port)
            if self._tls is None:
                self._connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
            else:
                self._connection = http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=self._tls)
                if proxy is not None:
                    self._connection.set_tunnel(self._host, self._port, dict(proxy.headers))
            self._connection.response_class = cast("type[http.client.HTTPResponse]", self._response)
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_seconds)
        return self._connection

    def _response(self, sock: socket.socket, *args: Any, **named: Any) -> http.client.HTTPResponse:
        """Return a response whose every read, of its head too, ends at the deadline."""
        response = http.client.HTTPResponse(sock, *args, **named)
        response.fp = io.BufferedReader(_TimedReader(response.fp.detach(), sock, self._left))
        return response

    def _read(self, response: http.client.HTTPResponse, limit_bytes: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := response.read1(CHUNK_BYTES):
            size += len(piece)
            if size > limit_bytes:
                raise Rejected("body_too_large", f"the answer of {self._host} is over {limit_bytes} bytes")
            pieces.append(piece)
        if response.length:
            raise http.client.IncompleteRead(b"".join(pieces), response.length)
        response.close()
        return b"".join(pieces)

    def _where(self) -> str:
        """Return whom requests go to, for people."""
        proxy = self._proxy
        through = "" if proxy is None else f" through the proxy {_address(proxy.host, proxy.port)}"
        return f"{_address(self._host, self._port)}{through}"

    def _left(self) -> float:
        left = self._deadline - self._clock.monotonic_seconds()
        if left <= 0:
            raise TimeoutError("deadline passed")
        return left


class _TimedReader(io.RawIOBase):
    """Reads a socket, each time for as long as is left: a timeout alone starts anew with each byte."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, left: Callable[[], float]) -> None:
        self._raw = raw
        self._sock = sock
        self._left = left

    def readable(self) -> bool:
        """Tell that this can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there into a buffer.

        Raises:
            OSError: There is no time left, or the connection broke.
        """
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close it; may be called twice."""
        self._raw.close()
        super().close()


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What shows a server who asks.

    Attributes:
        certificate, key: PEM files.
    """

    certificate: Path
    key: Path

    def load(self, context: ssl.SSLContext) -> None:
        """Have the next connection show it, as the files are now.

        Raises:
            OSError: They cannot be used; it says which, as the system does not.
        """
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            words = f"the certificate {self.certificate} with the key {self.key} cannot be used: {error}"
            raise OSError(words) from error


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy.

    Attributes:
        headers: What shows it who asks.
    """

    host: str
    port: int
    headers: Mapping[str, str]


def parse_proxy(text: str) -> Proxy:
    """Return the proxy of `http://[USER:PASSWORD@]HOST:PORT`.

    Raises:
        Rejected: `bad_url`; the message does not repeat the text, as it may hold a password.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    if parts.scheme != "http" or not parts.hostname or port is None:
        raise Rejected("bad_url", "proxy is no address of an HTTP proxy", "write http://HOST:PORT")
    headers: dict[str, str] = {}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    return Proxy(parts.hostname, port, headers)


def _parts_of(url: str) -> SplitResult:
    shown = repr(url) if "@" not in url else f"...{url[url.rindex('@') :]!r}"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise Rejected("bad_url", f"{shown} is no http or https address")
    if parts.username is not None:
        raise Rejected("bad_url", f"{shown} holds a user or a password", "name a token_file beside it")
    return parts


def _address(host: str, port: int | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))


def _describe(error: Exception) -> str:
    """Return what went wrong, for a line of a log: an error may hold what a server sent."""
    text = str(error)[:REASON_CHARACTERS]
    return "".join(letter if letter.isprintable() else "?" for letter in text) or type(error).__name__


def _require_sendable(headers: Mapping[str, str]) -> None:
    """Return if headers can be sent; what they hold is not repeated, as it may be a secret.

    Raises:
        Retryable: Not as they are now.
    """
    for name, value in headers.items():
        if not _SENDABLE(value):
            raise Retryable(f"the header {name} cannot be sent: a token is one line of plain characters")


def _unpacked(raw: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Return a body without its content encoding; all members of a gzip stream belong to it."""
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "x-gzip"):
        raise Rejected("bad_encoding", f"the answer's encoding {encoding!r} was not asked for")
    pieces: list[bytes] = []
    size = 0
    while raw:
        member = zlib.decompressobj(wbits=31)
        try:
            pieces.append(member.decompress(raw, limit_bytes - size + 1))
        except zlib.error as error:
            raise Rejected("bad_encoding", f"the answer is not gzip: {error}") from None
        size += len(pieces[-1])
        if size > limit_bytes:
            raise Rejected("body_too_large", f"the answer is over {limit_bytes} bytes when unpacked")
        if not member.eof:
            raise Rejected("bad_encoding", "the gzip answer is cut short")
        raw = member.unused_data
    return b"".join(pieces)
