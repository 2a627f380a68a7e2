"""Turn what runs add up to into small files beside the spool, and back, so that counts go on after a restart.

Files that cannot be read cost the counts a fresh start, which the platform sees as a reset; they never stop the agent.
"""

import errno
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secondsight.agent.training.measures import Measured

logger = logging.getLogger(__name__)

VERSION = 1
FILE_BYTES_MAXIMUM = 64 << 20


def kept(measured: Measured) -> dict[str, Any]:
    """Return counts and durations as JSON."""
    return {
        "start_ms": measured.start_ms,
        "counts": [[*key, value] for key, value in measured.counts.items()],
        "durations": [[*key, spread.buckets, spread.sum] for key, spread in measured.durations.items()],
    }


def restored(said: Mapping[str, Any]) -> Measured:
    """Return what `kept` gave."""
    measured = Measured(start_ms=int(said["start_ms"]))
    for name, label, value in said["counts"]:
        measured.count((name, label), value)
    for name, label, buckets, total in said["durations"]:
        spread = measured.spread((name, label))
        if len(buckets) == len(spread.buckets):
            spread.buckets, spread.sum = [int(count) for count in buckets], total
    return measured


class Keeper:
    """Keeps the newest state in two files by turns, so that one is whole whenever the agent is killed.

    They stay open, as making a file anew for every tick would cost more than all else. `close` may be called twice.
    """

    def __init__(self, path: Path) -> None:
        self._paths = tuple(path.with_name(f"{path.stem}.{turn}{path.suffix}") for turn in (0, 1))
        self._files: list[int | None] = [None, None]
        self._number = 0

    def load(self) -> tuple[Any, int] | None:
        """Return (state, when it was saved) of the newer file that can be read, or None where there is none."""
        found = [told for path in self._paths if (told := _read(path)) is not None]
        if not found:
            return None
        number, state, saved_ms = max(found, key=lambda told: told[0])
        self._number = number
        return state, saved_ms

    def save(self, state: Mapping[str, Any], now_ms: int) -> None:
        """Write the older of the two files anew.

        Raises:
            OSError: The disk refuses; the newer file stands.
        """
        self._number += 1
        turn = self._number % 2
        said = {"version": VERSION, "number": self._number, "saved_ms": now_ms, "state": state}
        data = json.dumps(said, separators=(",", ":")).encode()
        descriptor = self._files[turn]
        if descriptor is None:
            self._paths[turn].parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._paths[turn], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._files[turn] = descriptor
        os.ftruncate(descriptor, 0)
        written = os.pwrite(descriptor, data, 0)
        if written != len(data):
            raise OSError(errno.ENOSPC, "no space left", str(self._paths[turn]))

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._files:
            if descriptor is not None:
                os.close(descriptor)
        self._files = [None, None]


def _read(path: Path) -> tuple[int, Any, int] | None:
    try:
        return _parse(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        logger.info("%s is not whole, the other one counts: %s", path, error)
        return None


def _parse(path: Path) -> tuple[int, Any, int]:
    if path.stat().st_size > FILE_BYTES_MAXIMUM:
        raise ValueError("it is too large")
    said = json.loads(path.read_text())
    if said["version"] != VERSION:
        raise ValueError(f"its version is {said['version']}")
    return int(said["number"]), said["state"], int(said["saved_ms"])
