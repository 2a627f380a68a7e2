"""Settings of the reader of nvidia-smi."""

from dataclasses import dataclass
from pathlib import Path

from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class SmiSettings:
    """How nvidia-smi is read, on hosts that have nothing better.

    Attributes:
        program: Name or path of nvidia-smi.
        interval_ms: Cadence of its rows.
        restart_seconds: First wait before the program is started again after it ended; doubles up to a minute.
    """

    program: Path = Path("nvidia-smi")
    interval_ms: int = 1000
    restart_seconds: float = 1.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.interval_ms < 200 or self.restart_seconds <= 0:
            raise Rejected("bad_config", "agent.smi: interval_ms is at least 200, restart_seconds more than 0")
