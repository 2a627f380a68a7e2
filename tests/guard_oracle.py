"""Run statements on rows of the caller alone, and on those of everyone, and say whether both give the same."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from small_fleet import Engine, Size

SECRETS = ("tenant_b", "xh0", "xh1", "xh2", "xh3", "cx", "foreign", "c3", "L40S", "H200")
"""What only rows outside of the caller's scope hold."""


@dataclass(frozen=True)
class Ran:
    """What one statement gave: rows in no order, or the engine's words about why not."""

    rows: tuple[tuple[Any, ...], ...]
    error: str = ""
    text: str = ""

    @classmethod
    def of(cls, line: str) -> "Ran":
        """Return what a line of an engine tells."""
        answer = json.loads(line)
        rows = tuple(sorted((tuple(map(_cell, row)) for row in answer["rows"]), key=repr))
        return cls(rows, answer["error"], line)

    def same(self, other: "Ran") -> bool:
        """Tell whether the rows are the same, in any order, numbers to nine digits."""
        if len(self.rows) != len(other.rows):
            return False
        return all(map(_close, self.rows, other.rows))


class Oracle:
    """Both sets of rows, side by side."""

    def __init__(self, thinned: int = 1) -> None:
        size = Size(20_000, 20_000, 100, 1_000, thinned)
        self.caller, self.full = Engine("caller", size), Engine("full", size)

    def __enter__(self) -> "Oracle":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.caller.close()
        self.full.close()

    def send(self, original: str, guarded: str) -> None:
        """Hand over one statement in both forms."""
        self.caller.send(original)
        self.full.send(guarded)

    def receive(self, count: int) -> list[tuple[Ran, Ran]]:
        """Return the answers to so many statements, in their order: of the caller's rows, of everyone's."""
        return [(Ran.of(self.caller.next()), Ran.of(self.full.next())) for _ in range(count)]

    def compare(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[Ran, Ran]]:
        """Run (original, guarded) pairs, the first on the caller's rows and the second on those of everyone."""
        for pair in pairs:
            self.send(*pair)
        return self.receive(len(pairs))


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-8) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_close, one, other))
    return bool(one == other)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return tuple(sorted(map(_cell, value), key=repr))
    try:
        return float(f"{float(value):.9g}")
    except (TypeError, ValueError):
        return value
