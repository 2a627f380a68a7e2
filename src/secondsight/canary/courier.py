"""Bring frames and events of the canary to a gateway, as anybody else's are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from secondsight.agent.client.connection import Answer, Connection
from secondsight.agent.client.secret import read_secret
from secondsight.agent.client.transport import CONTENT_TYPE, JSON_TYPE
from secondsight.clock import Clock
from secondsight.errors import Permanent, Retryable

TIMEOUT_SECONDS = 20.0
LIMIT_BYTES = 1 << 20
REFUSED = range(400, 500)
AGAIN = frozenset({401, 403, 408, 424, 429})
"""Answers of a gateway that says no today and may say yes tomorrow."""


class Courier:
    """One connection. For one thread; `close()` may be called twice.

    Args:
        token_file: Under which frames go.
        events_token_file: Under which events go; none go where it is None.
    """

    def __init__(
        self,
        gateway: str,
        token_file: Path,
        clock: Clock,
        *,
        events_token_file: Path | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self._connection = Connection(gateway, clock, ca_file=ca_file)
        self._token_file = token_file
        self._events_token_file = events_token_file

    def frames(self, body: bytes) -> None:
        """Have frames stored; durable when it returns.

        Raises:
            Retryable: No answer, or one that asks to come back.
            Permanent: The gateway refuses some of them.
        """
        self._post("/v1/frames", CONTENT_TYPE, body, self._token_file)

    def event(self, event: Mapping[str, Any]) -> None:
        """Have an event stored.

        Raises:
            Retryable, Permanent: As `frames`.
        """
        if self._events_token_file is not None:
            self._post("/v1/events", JSON_TYPE, orjson.dumps(event), self._events_token_file)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _post(self, path: str, content_type: str, body: bytes, token_file: Path) -> None:
        headers = {"Authorization": f"Bearer {read_secret(token_file)}", "Content-Type": content_type}
        answer = self._connection.request(
            "POST", path, headers, timeout_seconds=TIMEOUT_SECONDS, limit_bytes=LIMIT_BYTES, body=body
        )
        _require_taken(path, answer)


def _require_taken(path: str, answer: Answer) -> None:
    if answer.status in REFUSED and answer.status not in AGAIN:
        raise Permanent(f"{path} of the gateway answers {answer.status}: {answer.body[:300]!r}")
    if answer.status != 200:
        raise Retryable(f"{path} of the gateway answers {answer.status}")
    rejected = orjson.loads(answer.body)["rejected"]
    if rejected:
        raise Permanent(f"{path} of the gateway refuses {len(rejected)} items: {str(rejected[0])[:300]}")
