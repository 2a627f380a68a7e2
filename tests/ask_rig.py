"""What tests of questions share: the caller's names, a planner over the five views, a store behind the guard."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from types import TracebackType
from typing import Any

from guard_fixture import LIMITS, NOW_MS, registry, scope
from secondsight.ask.followup import with_context
from secondsight.ask.known import Known
from secondsight.ask.plan import Planner
from secondsight.ask.question import Question
from secondsight.ask.reading import read
from secondsight.ask.run import Rows
from secondsight.ask.views import views_of
from secondsight.ask.vocabulary import load_vocabulary
from secondsight.catalog.load import load_catalog
from secondsight.guard.check import guard
from small_fleet import Engine, Size

KNOWN = Known(
    {
        "cluster_id": frozenset({"c1", "c2"}),
        "host_id": frozenset({"h0", "h1", "h2", "h3"}),
        "gpu_id": frozenset(f"GPU-{cluster}-{index:04d}" for cluster in (0, 1) for index in range(16)),
        "job_id": frozenset({"job-0", "job-1", "job-2"}),
        "workload_id": frozenset({"wl-0", "wl-1", "wl-2"}),
        "owner_team": frozenset({"ml", "vision", "infra"}),
        "model": frozenset({"H100", "A100"}),
    },
    frozenset({"tenant_a"}),
)


@cache
def planner() -> Planner:
    """Return the planner of the five views of the cases."""
    return Planner(views_of(registry()), load_vocabulary(load_catalog()))


def plan(question: str, zone: str = "UTC", context: Sequence[str] = (), now_ms: int = NOW_MS) -> Question:
    """Return what the planner makes of a question after some turns."""
    vocabulary = planner().vocabulary
    readings = [read(turn, KNOWN, vocabulary, zone, now_ms) for turn in (*context, question)]
    return planner().plan(with_context(readings), now_ms)


SIZE = Size(288_000, 40_000, 1_000, 20_000)
"""An hour of raw rows, one a second."""


class Store:
    """Rows of everyone, and rows of the caller alone, each in a process of its own."""

    def __init__(self) -> None:
        self._full, self._caller = Engine("full", SIZE), Engine("caller", SIZE)
        self.sent: list[str] = []

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._full.close()
        self._caller.close()

    def run(self, sql: str) -> Rows:
        """Run a statement as the caller: through the guard, on the rows of everyone."""
        guarded = guard(sql, scope(), registry(), NOW_MS, LIMITS)
        self.sent.append(guarded.sql)
        rows = _plain(self._full.rows(guarded.sql))
        return Rows(tuple(output.name for output in guarded.outputs), rows[: LIMITS.rows], len(rows) > LIMITS.rows)

    def expected(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        """Return the rows of a statement as it stands, on the caller's rows alone."""
        return _plain(self._caller.rows(sql))


def _plain(rows: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """Return cells as Arrow would give them: JSON writes wide integers as text."""
    return tuple(
        tuple(int(cell) if isinstance(cell, str) and cell.isdigit() and len(cell) < 19 else cell for cell in row)
        for row in rows
    )


def ms(text: str) -> int:
    """Return the epoch milliseconds of an RFC 3339 time."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
