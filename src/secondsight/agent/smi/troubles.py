"""Recognise the lines that nvidia-smi prints in place of rows: the driver is away, or one GPU is.

They arrive on standard output, alone or between rows, and differ from driver to driver; what they name is kept.
"""

import re
from collections.abc import Iterable

from secondsight.agent.smi.rows import Fault
from secondsight.agent.smi.texts import Trouble

_ADDRESS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"

_LINES: tuple[tuple[re.Pattern[str], Trouble], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), trouble)
    for pattern, trouble in (
        (r"unable to determine the device handle for .*(is lost|fallen off the bus)", Trouble.LOST),
        (r"gpu is lost", Trouble.LOST),
        (r"unable to determine the device handle for .*reset", Trouble.RESET_REQUIRED),
        (r"unable to determine the device handle for", Trouble.UNKNOWN_ERROR),
        (r"no devices were found", Trouble.NO_DEVICES),
        (r"failed to initialize nvml: driver/library version mismatch", Trouble.VERSION_MISMATCH),
        (r"nvml library version", Trouble.VERSION_MISMATCH),
        (r"failed to initialize nvml: insufficient permissions", Trouble.NO_PERMISSION),
        (r"failed to initialize nvml: (driver not loaded|.*library|nvml shared)", Trouble.DRIVER_AWAY),
        (r"failed to initialize nvml", Trouble.UNKNOWN_ERROR),
        (r"nvidia-smi has failed because it couldn.?t communicate with the nvidia driver", Trouble.DRIVER_AWAY),
        (r"nvidia-smi has failed because you do not have", Trouble.NO_PERMISSION),
    )
)
_NAMED = re.compile(rf"({_ADDRESS})", re.IGNORECASE)
_INDEX = re.compile(r"\bgpu\s*(\d+)\b", re.IGNORECASE)

ADVICE: dict[Trouble, str] = {
    Trouble.LOST: "the GPU no longer answers: look for Xid 79 in the kernel log, restart the host, then call support",
    Trouble.RESET_REQUIRED: "drain the GPU and reset it (nvidia-smi --gpu-reset)",
    Trouble.UNKNOWN_ERROR: "if all GPUs of a container fail at once, restart it or run the agent on the host",
    Trouble.NO_PERMISSION: "run the agent as a user who may read this",
    Trouble.NO_DEVICES: "the driver sees no GPU: compare with lspci",
    Trouble.VERSION_MISMATCH: "the driver was updated under a running module: reload it, or restart the host",
    Trouble.DRIVER_AWAY: "load the driver (modprobe nvidia), or restart the host",
}
"""What an operator does about each trouble."""


def fault_of(line: int, text: str, round_number: int = 0) -> Fault | None:
    """Return the fault that a line tells of, or None if it tells of none."""
    trouble = next((trouble for pattern, trouble in _LINES if pattern.search(text)), None)
    if trouble is None:
        return None
    of_one_gpu = trouble in (Trouble.LOST, Trouble.RESET_REQUIRED) or "device handle" in text.lower()
    return Fault(line, trouble, _named(text) if of_one_gpu else "", text.strip()[:200], round_number)


def faults_of(lines: Iterable[str]) -> list[Fault]:
    """Return the faults of a whole text."""
    return [fault for number, text in enumerate(lines, 1) if (fault := fault_of(number, text)) is not None]


def _named(text: str) -> str:
    address = _NAMED.search(text)
    if address is not None:
        return address[1]
    index = _INDEX.search(text)
    return index[1] if index is not None else ""
