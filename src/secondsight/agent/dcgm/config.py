"""Settings of the reader of DCGM's Python bindings."""

from dataclasses import dataclass
from pathlib import Path

from secondsight.errors import Rejected

BINDINGS = (
    Path("/usr/share/datacenter-gpu-manager-4/bindings/python3"),
    Path("/usr/local/dcgm/bindings/python3"),
    Path("/usr/src/dcgm/bindings/python3"),
)
"""Where the package of DCGM puts its bindings."""


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """How a DCGM host engine is read.

    Attributes:
        address: Host and port of nv-hostengine, or `unix:///path` of its socket.
        bindings: Folder that holds dcgm_agent.py; the places of the package if empty.
        interval_ms: Cadence, also of the watches.
        fields: Numbers of the fields to watch; every one of the catalogue if empty.
        profiling: Watch profiling fields too, as far as the GPU can count them in one pass.
        timeout_seconds: For one reading; 0 for 0.7 of the interval.
    """

    address: str = "127.0.0.1:5555"
    bindings: Path | None = None
    interval_ms: int = 1000
    fields: tuple[int, ...] = ()
    profiling: bool = True
    timeout_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.interval_ms < 100:
            raise Rejected("bad_config", "agent.dcgm: interval_ms is at least 100")

    def folder(self) -> Path | None:
        """Return the folder of the bindings, None where there is none."""
        places = (self.bindings,) if self.bindings is not None else BINDINGS
        return next((place for place in places if (place / "dcgm_agent.py").is_file()), None)
