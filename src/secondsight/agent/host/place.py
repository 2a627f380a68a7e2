"""Say which host is read, and where its files are."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    """Which host is read, and where its files are.

    Attributes:
        root: Folder that holds proc and sys.
    """

    host_id: str
    rack: str = ""
    root: Path = Path("/")
    interval_ms: int = 1000
