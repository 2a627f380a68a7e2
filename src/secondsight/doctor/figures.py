"""Ask the parts of a platform over HTTP, as anybody may, and read the figures that they show on `/metrics`."""

from collections.abc import Mapping, Sequence

from secondsight.agent.client.connection import Answer, Connection
from secondsight.agent.scrape.exposition import Syntax, parse
from secondsight.clock import Clock

WAIT_SECONDS = 10.0
LIMIT_BYTES = 4 << 20

Figures = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
"""Name -> (labels, value)."""


def get(address: str, path: str, clock: Clock) -> Answer:
    """Return what a part answers.

    Raises:
        SecondsightError: It does not answer.
    """
    connection = Connection(address, clock)
    try:
        headers = {"User-Agent": "secondsight-doctor"}
        return connection.request("GET", path, headers, timeout_seconds=WAIT_SECONDS, limit_bytes=LIMIT_BYTES)
    finally:
        connection.close()


def figures(address: str, clock: Clock) -> Figures:
    """Return what a part shows on `/metrics`.

    Raises:
        SecondsightError: It does not answer.
    """
    text = get(address, "/metrics", clock).body.decode(errors="replace")
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for sample in parse(text, Syntax.TEXT).samples:
        found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def total(shown: Figures, name: str) -> float:
    """Return the sum of a figure over all its labels."""
    return sum(value for _, value in shown.get(name, ()))
