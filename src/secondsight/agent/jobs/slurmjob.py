"""Say what a Slurm job is: the words that every form of Slurm's output is turned into.

Names of users, command lines, working folders and comments are in those outputs; they are never taken over.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from enum import IntEnum
from typing import Any


class JobState(IntEnum):
    """Values of the metric `job_state`."""

    PENDING = 0
    RUNNING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4
    TIMEOUT = 5
    PREEMPTED = 6
    NODE_FAILURE = 7
    OUT_OF_MEMORY = 8
    UNKNOWN = 9


STATES: Mapping[str, JobState] = {
    "PENDING": JobState.PENDING,
    "CONFIGURING": JobState.PENDING,
    "EXPEDITING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "LAUNCH_FAILED": JobState.FAILED,
    "SPECIAL_EXIT": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.TIMEOUT,
    "PREEMPTED": JobState.PREEMPTED,
    "NODE_FAIL": JobState.NODE_FAILURE,
    "BOOT_FAIL": JobState.NODE_FAILURE,
    "RECONFIG_FAIL": JobState.NODE_FAILURE,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
}
"""Slurm's word -> the metric's state; a job that is suspended still holds its GPUs."""

SHORT_STATES: Mapping[str, str] = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}
"""Slurm's short word -> its long one."""

_EPOCH_SECONDS = re.compile(r"[0-9]{1,12}").fullmatch
_EXIT = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9})?.*)?").fullmatch
_DURATION = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?").fullmatch
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d").fullmatch


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one run of a job that was requeued.

    Attributes:
        job_id: The raw number where the output has it, else as printed (`81_4`, `81+0`).
        array_id: `81_4` for a task of an array.
        word: Slurm's own word for the state, in lower case, where it tells more.
        gpus: GPUs that are allocated, or None where the output does not tell; never what is only asked for.
        node_gpus: Node -> indexes of its GPUs.
        elapsed_seconds: Time that it ran, by Slurm's own account; stamps of local time cannot give it.
        exit_code, signal: As its end left them.
        cancelled_by: Numeric user id.
    """

    job_id: str
    name: str = ""
    array_id: str = ""
    user_id: str = ""
    account: str = ""
    partition: str = ""
    state: JobState = JobState.UNKNOWN
    word: str = ""
    nodes: tuple[str, ...] = ()
    gpus: int | None = None
    node_gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    eligible_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    elapsed_seconds: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    cancelled_by: str = ""
    restarts: int | None = None

    @property
    def gpu_seconds(self) -> int | None:
        """Return GPUs times seconds, or None where either is not known."""
        return None if self.gpus is None or self.elapsed_seconds is None else self.gpus * self.elapsed_seconds


def state_of(text: str) -> tuple[JobState, str]:
    """Return the state and the id of the user who cancelled, of `CANCELLED by 1001`, `COMPLETING`, `NODE_FAIL`.

    A state may be short (`CG`), cut where its column ended (`OUT_OF_ME+`), or stand before its flags.
    """
    word, _, rest = text.strip().partition(" ")
    by = rest.removeprefix("by ").strip()
    return _state(word.partition(",")[0].upper()), by if by.isdecimal() else ""


def _state(word: str) -> JobState:
    whole = SHORT_STATES.get(word, word.rstrip("+"))
    if not word.endswith("+"):
        return STATES.get(whole, JobState.UNKNOWN)
    meant = {state for long, state in STATES.items() if long.startswith(whole)}
    return meant.pop() if len(meant) == 1 else JobState.UNKNOWN


def time_ms(text: str, zone: tzinfo) -> int | None:
    """Return epoch ms of a stamp: epoch seconds, or local time of a zone; None for `Unknown`, `None`, `N/A`, 0.

    Of a local time that stands twice, the first is taken.
    """
    plain = text.strip()
    if _EPOCH_SECONDS(plain):
        return int(plain) * 1000 or None
    if not _STAMP(plain):
        return None
    try:
        return round(datetime.fromisoformat(plain).replace(tzinfo=zone).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def duration_seconds(text: str) -> int | None:
    """Return the seconds of `2-03:04:05`, `20:27:30` or `27:30`."""
    found = _DURATION(text.strip())
    if not found:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def number_of(value: Any) -> int | None:
    """Return a number of Slurm's JSON: plain, or `{"set": bool, "infinite": bool, "number": n}`; None if not set."""
    if isinstance(value, dict):
        is_set = value.get("set") is True and value.get("infinite") is not True
        return number_of(value.get("number")) if is_set else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def exit_of(text: str) -> tuple[int | None, int | None]:
    """Return exit code and signal of `0:15`."""
    found = _EXIT(text.strip())
    return (None, None) if found is None else (int(found[1]), int(found[2] or 0))
