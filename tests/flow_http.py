"""Send one request and take the answer even where the other side answers before it has read everything."""

import http.client
import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 60


def send(
    address: str, method: str, path: str, token: str, body: bytes | None = None, kind: str = ""
) -> tuple[int, Any]:
    """Return status and JSON of an answer; an empty token sends none."""
    parts = urlsplit(address)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if kind:
        headers["Content-Type"] = kind
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
