"""Ask a running api from another process: the standard library's HTTP, a bearer token, and the project's errors."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from socket import gaierror
from ssl import SSLError
from typing import Any
from urllib.parse import urlencode, urlsplit

from secondsight.errors import Rejected, Retryable

TIMEOUT_SECONDS = 60.0
JSON_TYPE = "application/json"


class ApiClient:
    """A connection to one api; not to be shared between threads.

    Args:
        server: `http://HOST:PORT` or `https://...`, with a path prefix where it has one.
        token: Bearer token of a role that may read.

    Raises:
        Rejected(bad_server): `server` is no such address.
    """

    def __init__(self, server: str, token: str) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Rejected("bad_server", f"{server!r} is not an address", "for example --server http://127.0.0.1:8470")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
        self._prefix = parts.path.rstrip("/")
        self._server = server
        self._token = token

    def get_json(self, path: str, params: Mapping[str, str | None]) -> Any:
        """Return the JSON of a GET; parameters that are None or "" are left out.

        Raises:
            Rejected: The api refused; its code, message and hint.
            Retryable: The api does not answer, or says to come back.
        """
        return json.loads(self.get_text(path, params, JSON_TYPE))

    def send_json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of the answer to a request with a JSON body.

        Raises:
            Rejected, Retryable: As `get_json`.
        """
        headers = {"authorization": f"Bearer {self._token}", "accept": JSON_TYPE, "content-type": JSON_TYPE}
        return json.loads(self._exchange(method, path, None if body is None else json.dumps(body), headers))

    def send_text(self, method: str, path: str, body: Mapping[str, Any], accept: str) -> str:
        """Return the body of the answer to a request with a JSON body, in the type asked for.

        Raises:
            Rejected, Retryable: As `get_json`.
        """
        headers = {"authorization": f"Bearer {self._token}", "accept": accept, "content-type": JSON_TYPE}
        return self._exchange(method, path, json.dumps(body), headers)

    def get_text(self, path: str, params: Mapping[str, str | None], accept: str) -> str:
        """Return the body of a GET in the type asked for.

        Raises:
            Rejected, Retryable: As `get_json`.
        """
        query = urlencode({name: value for name, value in params.items() if value})
        headers = {"authorization": f"Bearer {self._token}", "accept": accept}
        return self._exchange("GET", f"{path}?{query}", None, headers)

    def _exchange(self, method: str, target: str, sent: str | None, headers: Mapping[str, str]) -> str:
        try:
            self._connection.request(method, f"{self._prefix}{target}", sent, dict(headers))
            response = self._connection.getresponse()
            body = response.read().decode()
        except (OSError, HTTPException) as error:
            self.close()
            raise Retryable(f"{self._server} does not answer: {_cause(error)}") from None
        if response.status not in (200, 201):
            raise _refusal(response.status, body)
        return body

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._connection.close()


def read_token(path: Path) -> str:
    """Return the token that a file holds.

    Raises:
        Rejected(no_token): There is no such file, or it cannot be read.
    """
    try:
        return path.read_text().strip()
    except OSError as error:
        hint = "name the file with --token-file; `secondsight up` writes DIR/tokens/admin"
        raise Rejected("no_token", f"cannot read the token in {path}: {error.strerror}", hint) from None


def _cause(error: OSError | HTTPException) -> str:
    """Return why a server does not answer, and what to do about it."""
    match error:
        case gaierror():
            return "its name is not known; check --server"
        case ConnectionRefusedError():
            return "nothing listens there; is it running? `secondsight up` starts it, --server names another"
        case TimeoutError():
            return f"no answer within {TIMEOUT_SECONDS:.0f} s; `secondsight doctor` on its host says what is wrong"
        case SSLError():
            return f"{error}; check the certificate, and https in --server"
        case _:
            return f"{error}; check --server"


def _refusal(status: int, body: str) -> Rejected | Retryable:
    try:
        error = json.loads(body)["error"]
        code, message, hint = (str(error[name]) for name in ("code", "message", "hint"))
    except (ValueError, KeyError, TypeError):
        code, message, hint = f"status_{status}", f"the server answered with status {status}", ""
    if status == 503 or (status == 429 and code != "debug_budget"):
        return Retryable(f"{message}; {hint}")
    return Rejected(code, message, hint)
