"""Settings of the kernel log reader."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from secondsight.errors import Rejected


@dataclass(frozen=True, slots=True)
class KernelLogConfig:
    """Settings of the kernel log reader.

    Attributes:
        enabled: Read the kernel log.
        path: The kernel's device node, a pipe that stands for it, or a file of log lines; below the agent's `root`.
        fabric_manager_log: Log of the NVSwitch fabric manager; read where it is there.
        interval_ms: How often to look.
        lines_per_look: Most lines to take from each log at one look.
        actions: Xid -> what to advise instead of the table's action: `reboot`, `reset_gpu`, `restart_app`, `none`.
    """

    enabled: bool = True
    path: Path = Path("/dev/kmsg")
    fabric_manager_log: Path = Path("/var/log/fabricmanager.log")
    interval_ms: int = 1000
    lines_per_look: int = 2000
    actions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.interval_ms < 100 or self.lines_per_look < 1:
            raise Rejected("bad_config", "agent.kernel_log: interval_ms is at least 100, lines_per_look at least 1")
        for code in self.actions:
            if not (code.isascii() and code.isdigit()):
                raise Rejected("bad_config", f"agent.kernel_log.actions: {code!r} is no Xid", 'write "79" = "reboot"')
