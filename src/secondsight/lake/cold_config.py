"""Say what cold reads can be told."""

from dataclasses import dataclass, field
from pathlib import Path

from secondsight.errors import Rejected
from secondsight.lake.config import CatalogConfig


@dataclass(frozen=True, slots=True)
class ColdConfig:
    """Settings of reads that reach beyond what the hot store keeps.

    Attributes:
        catalog: Where the lake is; the same as the stage that fills it has.
        catalogue: Further catalogue files of the operator; the same as the processor has.
        processes: How many cold questions are answered at once, each by a process of its own.
        seconds: A question that takes longer is given up, and its process killed.
        memory_mib: Memory of the engine for one question; one that needs more is refused.
        threads: Threads of the engine for one question.
        rows: Rows of one answer at most, before they are figures.
        read_mib: Size of the files of one question at most.
    """

    catalog: CatalogConfig = field(default_factory=CatalogConfig)
    catalogue: tuple[Path, ...] = ()
    processes: int = 1
    seconds: float = 30.0
    memory_mib: int = 1024
    threads: int = 2
    rows: int = 3_000_000
    read_mib: int = 65_536

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        for name in ("processes", "seconds", "memory_mib", "threads", "rows", "read_mib"):
            if getattr(self, name) <= 0:
                raise Rejected("bad_config", f"cold.{name} must be more than 0")
