"""Carry bodies of frames to a gateway: one HTTPS or HTTP connection, a bearer token from a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from secondsight.agent.client.connection import Answer, ClientCertificate, Connection
from secondsight.agent.client.secret import read_secret
from secondsight.clock import Clock

CONTENT_TYPE = "application/x-secondsight-frame"
JSON_TYPE = "application/json"
ANSWER_LIMIT_BYTES = 4 << 20
TIMEOUT_SECONDS = 30.0
URGENT = {"X-Secondsight-Priority": "0"}


class Transport(Protocol):
    """Takes a body of frames to a gateway. One thread uses it."""

    def post(self, body: bytes, *, urgent: bool = False) -> Answer:
        """Send a body and return the gateway's answer, whatever its status.

        Args:
            body: Frames.
            urgent: All of them are of priority class P0, and the gateway may take them before others.

        Raises:
            Retryable: No answer came.
        """
        ...

    def close(self) -> None:
        """Close connections; may be called twice."""
        ...


class Observed:
    """A transport whose answers somebody else sees too, from the thread that posts."""

    def __init__(self, transport: Transport, observe: Callable[[Answer], None]) -> None:
        self._transport = transport
        self._observe = observe

    def post(self, body: bytes, *, urgent: bool = False) -> Answer:
        """Send a body; see `Transport`.

        Raises:
            Retryable: No answer came.
        """
        answer = self._transport.post(body, urgent=urgent)
        self._observe(answer)
        return answer

    def close(self) -> None:
        """Close connections; may be called twice."""
        self._transport.close()


class GatewayTransport:
    """Posts to `/v1/frames` of a gateway. The token is read anew for each request, so it can be replaced in place."""

    def __init__(
        self,
        gateway_url: str,
        token_file: Path,
        clock: Clock,
        *,
        ca_file: Path | None = None,
        proxy: str = "",
        client: ClientCertificate | None = None,
    ) -> None:
        self._connection = Connection(gateway_url, clock, ca_file=ca_file, proxy=proxy, client=client)
        self._token_file = token_file

    def post(self, body: bytes, *, urgent: bool = False) -> Answer:
        """Send a body; see `Transport`.

        Raises:
            Retryable: No answer came, or there is no token to send.
        """
        headers = {**self._headers(), "Content-Type": CONTENT_TYPE, **(URGENT if urgent else {})}
        return self._connection.request(
            "POST",
            "/v1/frames",
            headers,
            timeout_seconds=TIMEOUT_SECONDS,
            limit_bytes=ANSWER_LIMIT_BYTES,
            body=body,
        )

    def get(self, target: str, etag: str = "") -> Answer:
        """Ask for something, unless it is as `etag` names it; a transport is for one thread, posts included.

        Raises:
            Retryable: No answer came, or there is no token to send.
        """
        headers = {**self._headers(), **({"If-None-Match": etag} if etag else {})}
        return self._connection.request(
            "GET", target, headers, timeout_seconds=TIMEOUT_SECONDS, limit_bytes=ANSWER_LIMIT_BYTES
        )

    def enrol(self, secret: str, body: bytes) -> Answer:
        """Ask for a token of this agent's own, showing a secret; see `get`.

        Raises:
            Retryable: No answer came.
        """
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": JSON_TYPE, "User-Agent": "secondsight-agent"}
        return self._connection.request(
            "POST",
            "/v1/agents/enroll",
            headers,
            timeout_seconds=TIMEOUT_SECONDS,
            limit_bytes=ANSWER_LIMIT_BYTES,
            body=body,
        )

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {read_secret(self._token_file)}", "User-Agent": "secondsight-agent"}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
