"""Settings of how an agent follows plans."""

from dataclasses import dataclass

from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How an agent follows the gateway's plan; table `[agent.sampling]`.

    Attributes:
        follow_plan: Fetch the plan and follow it; else every reader keeps its own cadence.
        poll_exporters: Scrape exporters every second where the plan asks for 30 s too, for exact 30 s figures and a
            ring; it costs what scraping every second does.
        ring_mib: Most disk for seconds that were polled and not shipped; 0 keeps none.
        ring_free_mib: Free space below which the ring keeps nothing.
    """

    follow_plan: bool = True
    poll_exporters: bool = False
    ring_mib: int = 64
    ring_free_mib: int = 1024

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if not 0 <= self.ring_mib <= 4096 or self.ring_free_mib < 0:
            raise Rejected("bad_config", "agent.sampling: ring_mib is 0 to 4096, ring_free_mib at least 0")
