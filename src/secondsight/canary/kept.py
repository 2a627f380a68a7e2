"""Keep what the canary sent and checked in one small file: what is known to be stored is known after a restart too."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secondsight.errors import Retryable

RUNS_KEPT = 400
TOLD_KEPT = 2_000


@dataclass(slots=True)
class Kept:
    """What is in the file; times in epoch s.

    Attributes:
        runs: [from, to) in which every sample was acknowledged, but for those that are sent late.
        checked: Tier -> up to where it was found to be right, or told.
        told: Windows that an event was raised about, so that it is raised once.
    """

    path: Path
    runs: list[list[int]] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def sent(self, from_s: int, to_s: int) -> None:
        """Note that samples in [from, to) are acknowledged."""
        if self.runs and self.runs[-1][1] == from_s:
            self.runs[-1][1] = to_s
        else:
            self.runs = [*self.runs, [from_s, to_s]][-RUNS_KEPT:]
        self.save()

    def tell(self, key: str) -> None:
        """Note that something is told."""
        self.told = [*self.told, key][-TOLD_KEPT:]

    def save(self) -> None:
        """Write the file anew.

        Raises:
            Retryable: It cannot be written.
        """
        waiting = self.path.with_name(f"{self.path.name}.new")
        body = {"runs": self.runs, "checked": self.checked, "told": self.told}
        try:
            waiting.write_text(json.dumps(body))
            waiting.replace(self.path)
        except OSError as error:
            raise Retryable(f"{self.path} cannot be written: {error.strerror}") from error


def load_kept(path: Path) -> Kept:
    """Return what a file holds; nothing where it is absent or no such file, as the canary then begins anew."""
    try:
        body: Any = json.loads(path.read_text())
        if not isinstance(body, Mapping):
            return Kept(path)
        runs = [[int(first), int(end)] for first, end in body["runs"]]
        checked = {str(tier): int(at_s) for tier, at_s in body["checked"].items()}
        return Kept(path, runs, checked, [str(key) for key in body["told"]])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Kept(path)
