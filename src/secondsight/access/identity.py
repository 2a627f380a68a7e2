"""Say who is asking: roles, identities, and which collectors an identity may speak for."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class Role(StrEnum):
    """What an identity may do; see also its grants."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    COLLECTOR = "collector"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a request.

    Attributes:
        subject: Stable name for grants and audit: `token:<id>` or `user:<id>`.
        tenant_id: Home tenant; what a collector writes belongs to it.
        cluster_id, region: Where a collector writes to; "" for other roles.
        collector_pattern: Collector ids it may speak for: names separated by commas, `*` standing for any text.
        expires_ms: Epoch ms, or None.
        host_id: Host that an enrolled agent may write of, whatever its collector is called; "" where any rule applies.
    """

    subject: str
    role: Role
    tenant_id: str
    name: str
    cluster_id: str = ""
    region: str = ""
    collector_pattern: str = ""
    expires_ms: int | None = None
    host_id: str = ""

    def allows_collector(self, collector_id: str) -> bool:
        """Tell whether this identity may write as `collector_id`.

        Who may write as an agent may write as each of its sources, which it names `AGENT/SOURCE`.
        """
        return self.role is Role.COLLECTOR and _is_of(self.collector_pattern, collector_id)

    def allows_host(self, collector_id: str, host_id: str) -> bool:
        """Tell whether this identity may write of a host as `collector_id`, which it may write as.

        It may of the host that the collector is named after, and of each that the pattern matches, as `*` does any.
        """
        if host_id in (collector_id.partition("/")[0], self.host_id or None):
            return True
        return _matcher(self.collector_pattern).fullmatch(host_id) is not None


@lru_cache(maxsize=1 << 15)
def _is_of(pattern: str, collector_id: str) -> bool:
    """Tell whether a pattern has a collector, or its agent; the same ones are asked about with every request."""
    matches = _matcher(pattern).fullmatch
    agent_id = collector_id.partition("/")[0]
    return collector_id != "" and (
        matches(collector_id) is not None or (agent_id != "" and matches(agent_id) is not None)
    )


@lru_cache(maxsize=10_000)
def _matcher(pattern: str) -> re.Pattern[str]:
    alternatives = [part.strip() for part in pattern.split(",") if part.strip()]
    bodies = [".*".join(re.escape(piece) for piece in re.split(r"\*+", part)) for part in alternatives]
    return re.compile("|".join(f"(?:{body})" for body in bodies) or r"(?!)", re.DOTALL)
