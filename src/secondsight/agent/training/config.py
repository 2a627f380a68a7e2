"""Settings of what the agent reads of training jobs."""

import re
from dataclasses import dataclass
from pathlib import Path

from secondsight.errors import Rejected

_OCTAL = re.compile(r"[0-7]{3,4}").fullmatch


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Where training jobs tell their steps, see docs/guides/training.md.

    Attributes:
        socket: Unix datagram socket that jobs send to.
        mode: Permissions of the socket, octal digits; whoever may write can send.
        group: Group that owns the socket; the agent's own if empty.
        datagrams_per_second: Most that is read; what is beyond waits or is dropped by the sender, losing no count.
        buffer_mib: Most that waits for a tick.
        runs_maximum: Most runs that are kept; further ones are refused and counted.
    """

    socket: Path = Path("/run/secondsight/training.sock")
    mode: str = "666"
    group: str = ""
    datagrams_per_second: int = 500
    buffer_mib: int = 4
    runs_maximum: int = 64

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if not _OCTAL(self.mode):
            raise Rejected("bad_config", f"agent.training.mode: {self.mode!r} is no mode", 'octal digits: mode = "660"')
        if min(self.datagrams_per_second, self.buffer_mib, self.runs_maximum) < 1:
            raise Rejected("bad_config", "agent.training: rates and limits are at least 1")
        if len(str(self.socket).encode()) > 100:
            raise Rejected(
                "bad_config", f"agent.training.socket: {self.socket} is too long for a socket", "<= 100 bytes"
            )
