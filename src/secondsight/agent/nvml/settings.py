"""Settings of the NVML reader, and where the driver's library is looked for."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from secondsight.errors import Rejected

LIBRARY = "libnvidia-ml.so.1"
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
)
"""Where distributions, container runtimes and driver containers put the library."""

LOADER_CACHE = Path("/etc/ld.so.cache")
LOADER_CACHE_BYTES_MAXIMUM = 4 << 20
WHEN = ("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class NvmlSettings:
    """Settings of the NVML reader.

    Attributes:
        enabled: `auto` reads GPUs where the driver's library is found and looks for it again every minute; `on` and
            `off` do not look.
        library: The library, or the folder that holds it, where the loader does not find it by itself.
        deadline_ms: Longest that one reading may take; 0 for half of the agent's interval.
        processes: Report which processes hold a GPU, and how much of it.
        process_interval_ms: Cadence of those rows.
        parts_interval_ms: Cadence of rows of NVLinks, fans and memory banks.
        events: Listen to Xid, ECC, clock and availability events of the driver.
        abandon_seconds: A driver child that says nothing of any GPU for so long is left behind for another.
        start_spread_seconds: The driver is started a random share of this later, as whatever starts with the host
            would otherwise start it at the same moment.
    """

    enabled: str = "auto"
    library: Path | None = None
    deadline_ms: int = 0
    processes: bool = True
    process_interval_ms: int = 10_000
    parts_interval_ms: int = 30_000
    events: bool = True
    abandon_seconds: float = 60.0
    start_spread_seconds: float = 2.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.enabled not in WHEN:
            raise Rejected("bad_config", f"agent.nvml: enabled is {self.enabled!r}", f"one of {', '.join(WHEN)}")
        if min(self.process_interval_ms, self.parts_interval_ms) < 1000 or self.deadline_ms < 0:
            raise Rejected("bad_config", "agent.nvml: cadences of processes and parts are at least 1000 ms")
        if self.abandon_seconds < 1:
            raise Rejected("bad_config", "agent.nvml: abandon_seconds is at least 1")
        if not 0 <= self.start_spread_seconds <= 60:
            raise Rejected("bad_config", "agent.nvml: start_spread_seconds is from 0 to 60")


def is_there(settings: NvmlSettings, environment: Mapping[str, str]) -> bool:
    """Tell whether the driver's library can be found, without loading it."""
    if settings.library is not None:
        return (settings.library / LIBRARY).exists() if settings.library.is_dir() else settings.library.exists()
    folders = [*environment.get("LD_LIBRARY_PATH", "").split(":"), *FOLDERS]
    return any(folder and (Path(folder) / LIBRARY).exists() for folder in folders) or _is_cached()


def child_environment(settings: NvmlSettings) -> dict[str, str]:
    """Return the environment of the driver child, in which its threads share one heap."""
    environment = {"MALLOC_ARENA_MAX": "1", **os.environ}
    if settings.library is not None and settings.library.is_dir():
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{settings.library}:{before}" if before else str(settings.library)
    return environment


def library_file(settings: NvmlSettings) -> str:
    """Return the library's path where the settings name the file itself, else ""."""
    return str(settings.library) if settings.library is not None and settings.library.is_file() else ""


def _is_cached() -> bool:
    """Tell whether the loader's cache names the library and the file is still there."""
    try:
        with LOADER_CACHE.open("rb") as file:
            cache = file.read(LOADER_CACHE_BYTES_MAXIMUM)
    except OSError:
        return False
    names = [name for name in cache.split(b"\0") if name.endswith(b"/" + LIBRARY.encode())]
    return any(Path(os.fsdecode(name)).exists() for name in names)
