"""What the routes that take data share: who may write, what is let in, how large it may be, and how it is counted."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from secondsight.access.identity import Identity
from secondsight.gateway.door import Door
from secondsight.gateway.frames import Verdict
from secondsight.gateway.request import Body, Request
from secondsight.gateway.shares import Entry
from secondsight.selfmetrics import Labels, SelfMetrics

EXPANSION = 2
"""So many times the bound of a body it may have when it is unpacked."""

DROP_REASONS: Mapping[str, str] = {"future_time": "future", "too_old": "too_old", "bad_schema": "schema"}

Authenticate = Callable[[Request], Awaitable[Identity]]
"""Returns who sent a request; raises Rejected where that is nobody who may write."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bounds of one body.

    Attributes:
        received_bytes: As it comes.
        timeout_seconds: Until it is complete.
    """

    received_bytes: int
    timeout_seconds: float

    @property
    def unpacked_bytes(self) -> int:
        """Return how large it may be when it is unpacked."""
        return EXPANSION * self.received_bytes


@dataclass(frozen=True, slots=True)
class Front:
    """What stands before every intake. Lives in one event loop."""

    authenticate: Authenticate
    door: Door
    limits: BodyLimits
    metrics: SelfMetrics

    def body(self, entry: Entry) -> Body:
        """Return what holds the body of a request that was let in."""
        return Body(self.door.pressure, self.limits.received_bytes, self.limits.timeout_seconds, entry)

    def count(self, verdict: Verdict, body_bytes: int) -> None:
        """Count the frames of a request, and its bytes as they came."""
        counts: list[tuple[str, Labels, float]] = [("gateway_body_bytes_total", (), body_bytes)]
        for outcome, rows in verdict.rows.items():
            counts.append(("ingest_records_total", (("outcome", outcome),), rows))
        for code, rows in verdict.dropped_rows.items():
            counts.append(("ingest_dropped_records_total", (("reason", DROP_REASONS.get(code, "poison")),), rows))
        frames = (("accepted", len(verdict.accepted)), ("duplicate", verdict.duplicate), ("refused", verdict.refused))
        counts += [("gateway_frames_total", (("outcome", outcome),), number) for outcome, number in frames if number]
        counts += [("gateway_refused_items_total", (("code", refusal.code),), 1) for _, refusal in verdict.rejected]
        self.metrics.add(counts)
