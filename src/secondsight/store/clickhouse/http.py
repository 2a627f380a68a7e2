"""Send statements to a ClickHouse server over HTTP connections that are kept, and take answers as bytes.

The server holds an answer back until the statement is through, so a failure always comes as a status and never inside
rows. A statement that a kept connection could not carry is sent once more on a new one; whoever sends makes sure that
this changes nothing.
"""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import urllib3
from urllib3 import exceptions as http

from secondsight.errors import Rejected, SecondsightError
from secondsight.store.clickhouse.config import ClickHouseConfig
from secondsight.store.failures import StoreBusy, failure_of

AGAIN_SECONDS = 1.0
"""How long a caller is told to wait when the server is away."""
_OK = 200
_REFUSED_CODES = frozenset({"192", "193", "194", "516"})
_NO_DATABASE_CODE = "81"
_PROXY_FAILURES = frozenset({429, 502, 503, 504})
_STANDING = {"wait_end_of_query": 1, "session_timezone": "UTC"}

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """What is sent.

    Attributes:
        body: The statement, and the data of an insert after it.
        params: Name -> text of its parameters; they travel in the address, so none is long.
        settings: Settings of the server for it, and what its HTTP interface is told.
        patience_seconds: How long the answer is waited for.
        inserting: It adds rows.
    """

    body: bytes
    settings: Settings
    patience_seconds: float
    params: Mapping[str, str] = field(default_factory=dict)
    inserting: bool = False


class HttpConnections:
    """Connections to one server, of which up to `size` work at once. Safe to call from several threads."""

    def __init__(self, config: ClickHouseConfig, size: int) -> None:
        self._config = config
        self._size = size
        self._free = threading.BoundedSemaphore(size)
        parts = config.parts()
        told: dict[str, Any] = {"maxsize": size, "retries": False}
        told["headers"] = {"X-ClickHouse-User": config.user, "X-ClickHouse-Key": config.password()}
        host = str(parts.hostname)
        self._pool: urllib3.HTTPConnectionPool = (
            urllib3.HTTPSConnectionPool(host, config.port, ssl_context=_trust(config), **told)
            if parts.scheme == "https"
            else urllib3.HTTPConnectionPool(host, config.port, **told)
        )

    @contextmanager
    def turn(self, wait_seconds: float) -> Iterator[None]:
        """Hold one of the connections during a block.

        Raises:
            StoreBusy: None came free in time.
        """
        if not self._free.acquire(timeout=wait_seconds):
            raise StoreBusy(f"all {self._size} connections are busy", retry_after_seconds=AGAIN_SECONDS)
        try:
            yield
        finally:
            self._free.release()

    def send(self, statement: Statement) -> bytes:
        """Run a statement and return the bytes of its answer; see `send_counted`."""
        return self.send_counted(statement)[0]

    def send_counted(self, statement: Statement) -> tuple[bytes, Mapping[str, int]]:
        """Run a statement and return the bytes of its answer, and what it cost: read_rows, read_bytes, ...

        Raises:
            Retryable: The server is away, busy or slower than it may be.
            Rejected: `store_refused`, `store_untrusted`.
            QueryLimited: The statement ran into a limit.
            StatementFailed: The statement is wrong.
        """
        try:
            response = self._send_again(statement)
            return self._answer(response, statement), _cost(response)
        except http.SSLError as error:
            raise _untrusted(self._config, error) from None
        except http.ReadTimeoutError as error:
            raise self._away("did not answer in time", error) from None
        except http.HTTPError as error:
            raise self._away("cannot be reached", error) from None

    def close(self) -> None:
        """Close all connections; may be called twice."""
        self._pool.close()

    def _send_again(self, statement: Statement) -> urllib3.BaseHTTPResponse:
        try:
            return self._request(statement)
        except http.ProtocolError:
            return self._request(statement)

    def _request(self, statement: Statement) -> urllib3.BaseHTTPResponse:
        params = {f"param_{name}": text for name, text in statement.params.items()}
        url = f"/?{urlencode({**_STANDING, **statement.settings, **params})}"
        timeout = urllib3.Timeout(connect=self._config.connect_seconds, read=statement.patience_seconds)
        return self._pool.request("POST", url, body=statement.body, timeout=timeout)

    def _answer(self, response: urllib3.BaseHTTPResponse, statement: Statement) -> bytes:
        if response.status == _OK:
            return response.data
        raise self._failure(response, statement.inserting)

    def _failure(self, response: urllib3.BaseHTTPResponse, inserting: bool) -> SecondsightError:
        code = response.headers.get("X-ClickHouse-Exception-Code", "")
        text = response.data.decode(errors="replace").strip()
        if code in _REFUSED_CODES or (not code and response.status in (401, 403)):
            return _refused(self._config)
        if code == _NO_DATABASE_CODE:
            message = f"{self._config.url} has no database {self._config.database}; a processor makes it when it starts"
            return StoreBusy(message, retry_after_seconds=AGAIN_SECONDS)
        if not code and response.status in _PROXY_FAILURES:
            return self._away(f"answers {response.status}", None)
        if not code:
            message = f"{self._config.url} answers {response.status} and not as ClickHouse does"
            return Rejected("bad_config", message, "clickhouse.url wants the address of its HTTP interface")
        return failure_of(text if "Code: " in text else f"Code: {code}. {text}", inserting=inserting)

    def _away(self, what: str, error: Exception | None) -> StoreBusy:
        why = f": {_reason(error)}" if error is not None else ""
        return StoreBusy(f"ClickHouse at {self._config.url} {what}{why}", retry_after_seconds=AGAIN_SECONDS)


def _cost(response: urllib3.BaseHTTPResponse) -> Mapping[str, int]:
    """Return what a server says that a statement cost, as far as it can be read."""
    try:
        return {
            name: int(text) for name, text in json.loads(response.headers.get("X-ClickHouse-Summary", "{}")).items()
        }
    except (ValueError, AttributeError):
        return {}


def _reason(error: Exception) -> str:
    """Return the cause of an error of the HTTP client, without the addresses that it repeats."""
    cause = error.__cause__ or error
    return str(getattr(cause, "strerror", "") or cause)


def _refused(config: ClickHouseConfig) -> Rejected:
    said = f"the password in {config.password_file}" if config.password_file else "no password"
    return Rejected(
        "store_refused",
        f"ClickHouse at {config.url} refuses user {config.user} with {said}",
        "check clickhouse.user and clickhouse.password_file",
    )


def _untrusted(config: ClickHouseConfig, error: Exception) -> Rejected:
    trusted = f"what {config.ca_file} trusts" if config.ca_file else "what the system trusts"
    return Rejected(
        "store_untrusted",
        f"no TLS with ClickHouse at {config.url}, by {trusted}: {_reason(error)}",
        "check clickhouse.ca_file, and certificate_file and key_file where the server asks for them",
    )


def _trust(config: ClickHouseConfig) -> ssl.SSLContext:
    """Return what a server has to show, and what it is shown.

    Raises:
        Rejected: `bad_config`: a file cannot be read or is no PEM file.
    """
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.certificate_file is not None:
            context.load_cert_chain(config.certificate_file, config.key_file)
    except (OSError, ssl.SSLError) as error:
        names = [str(path) for path in (config.ca_file, config.certificate_file, config.key_file) if path is not None]
        message = f"clickhouse: {', '.join(names)} cannot be used for TLS: {error.strerror or error}"
        raise Rejected("bad_config", message, "check ca_file, certificate_file and key_file") from error
    return context
