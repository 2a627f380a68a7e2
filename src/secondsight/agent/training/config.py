"""Settings of what the agent reads of training jobs."""

import re
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

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


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Logs of jobs, or of inference engines.

    Attributes:
        glob: Which files, an absolute path with `*`, `?`, `[...]` and `**`.
        job: Job id of all of them; found in each path if empty.
        job_pattern: Regular expression with a group `job`, whose last match in the path counts; a path without one
            names its job by its file name.
        engine: `PORT/MODEL` of the inference engine that writes them, as its scraped rows are named; "" for jobs.
        zone: Zone of times that name none, such as Europe/Berlin; UTC if empty.
        from_start: Read files that were there before the agent from their beginning, not from their end.
    """

    glob: str
    job: str = ""
    job_pattern: str = r"(?:slurm|job)[-_.]?(?P<job>\d+)"
    engine: str = ""
    zone: str = ""
    from_start: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if not self.glob.startswith("/"):
            raise Rejected("bad_config", f"agent.logs.files.glob: {self.glob!r} is no absolute path", "begin with /")
        try:
            if "job" not in re.compile(self.job_pattern).groupindex:
                raise Rejected("bad_config", "agent.logs.files.job_pattern has no group job", "write (?P<job>...)")
            ZoneInfo(self.zone or "UTC")
        except (re.error, ValueError, KeyError) as error:
            raise Rejected("bad_config", f"agent.logs.files: {error}", "a Python expression; a zone by name") from error


@dataclass(frozen=True, slots=True)
class LogsConfig:
    """Which logs are followed, and how much of them; see docs/guides/training.md.

    Attributes:
        files: The logs.
        patterns: Further files of rules, tried before the shipped ones.
        bytes_per_tick: Most that is read of all files together in a tick.
        files_maximum: Most files that are followed; the newest are.
    """

    files: tuple[LogFiles, ...]
    patterns: tuple[Path, ...] = ()
    bytes_per_tick: int = 262_144
    files_maximum: int = 64

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            Rejected: `bad_config`.
        """
        if self.bytes_per_tick < 16_384 or self.files_maximum < 1:
            raise Rejected("bad_config", "agent.logs: bytes_per_tick is at least 16384, files_maximum at least 1")
