"""Turn what runs add up to into a small file beside the spool, and back, so that counts go on after a restart.

A file that cannot be read costs the counts a fresh start, which the platform sees as a reset; it never stops the agent.
"""

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


def save(path: Path, state: Mapping[str, Any], now_ms: int) -> None:
    """Replace the file in one step.

    Raises:
        OSError: The disk refuses; the old file stands.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps({"version": VERSION, "saved_ms": now_ms, "state": state}, separators=(",", ":")))
    os.replace(new, path)  # noqa: PTH105 # one step, as its name says


def load(path: Path) -> tuple[Any, int] | None:
    """Return (state, when it was saved), or None where there is none that can be read."""
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        logger.warning("%s is of no use, counts of training runs begin anew: %s", path, error)
        return None


def _read(path: Path) -> tuple[Any, int]:
    if path.stat().st_size > FILE_BYTES_MAXIMUM:
        raise ValueError("it is too large")
    said = json.loads(path.read_text())
    if said["version"] != VERSION:
        raise ValueError(f"its version is {said['version']}")
    return said["state"], int(said["saved_ms"])
