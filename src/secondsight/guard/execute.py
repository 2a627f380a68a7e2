"""Ask the engine about a statement that the guard let through, then run it, always within the same limits.

The engine's own reading of the text is the last word on which views it reads: a name that is not expected is a refusal,
and so is no answer. What fails has one of a few fixed messages; the operator's log has the engine's code, and no text.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secondsight.access.scope import Scope
from secondsight.errors import Rejected, Retryable, SecondsightError
from secondsight.guard.budget import Budget
from secondsight.guard.plan import Guarded
from secondsight.guard.refusal import Refused
from secondsight.guard.verify import check_engine
from secondsight.store.failures import QueryLimited, StatementFailed
from secondsight.store.params import literal
from secondsight.store.question import Asked, Question, Reply
from secondsight.store.statement import EXACT, QUESTION_PRIORITY

TREE_SECONDS = 5.0
_SLOW = ("query_too_slow", "the query ran longer than it may", "shorten the time range, or use a coarser view")
_DEAR = ("query_too_expensive", "the query reads more than it may", "shorten the time range, or use a coarser view")
_LARGE = ("query_too_large", "the query needs more memory than it may use", "group by fewer columns, or ask for less")
_RESULT = ("result_too_large", "the answer is larger than it may be", "aggregate more, or ask for fewer columns")
_FAILED = ("query_failed", "the query could not be run", "write it in a simpler way; operators find more in the log")
_LIMITED = {158: _DEAR, 307: _DEAR, 159: _SLOW, 160: _SLOW, 394: _SLOW, 241: _LARGE, 396: _RESULT}
_TOO_COMPLEX = {162, 167, 168, 191, 173}
"""Engine codes of texts that are too deep or too large, of sets and joins that are too large."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wall:
    """What lies around a question whatever its text is.

    Attributes:
        filters: Table below the views -> predicate that its rows must fulfil.
        told: What a server's row policies are told of the caller.
        shared: Several collectors report some of the caller's GPUs.
    """

    filters: Mapping[str, str]
    told: Mapping[str, Sequence[str]]
    shared: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a statement will read: rows of tables, None where the engine cannot say."""

    rows: int | None


class Executor:
    """Runs what the guard wrote. Safe to call from several threads.

    Args:
        store: Runs questions.
        budget: What one may cost.
        tables: Tables below the views, with their database.
    """

    def __init__(self, store: Asked, budget: Budget, tables: Sequence[str]) -> None:
        self._store = store
        self._budget = budget
        self._tables = tuple(tables)

    @property
    def budget(self) -> Budget:
        """Return what questions may cost."""
        return self._budget

    def wall(self, scope: Scope, *, shared: bool) -> Wall:
        """Return what keeps the rows of others from a caller below the views, whatever is asked."""
        return wall_of(scope, self._tables, shared=shared)

    def verify(self, guarded: Guarded, marker: str, wall: Wall) -> None:
        """Compare what the engine reads of a text with what it was meant to read.

        Raises:
            Refused(not_verified): They differ.
            Rejected, Retryable: As `run`.
        """
        found = self._ask(f"EXPLAIN QUERY TREE run_passes = 0 {guarded.sql}", marker, wall, TREE_SECONDS).rows
        try:
            check_engine((line for row in found.to_pylist() for line in row.values()), guarded.views)
        except Refused:
            _log.error("question %s: the engine reads something else than the guard wrote", marker)
            raise

    def estimate(self, sql: str, marker: str, wall: Wall) -> Estimate:
        """Return what a statement will read, and refuse what costs more than it may.

        Raises:
            Rejected(query_too_expensive, query_too_slow): It would read or take more than it may.
            Rejected, Retryable: As `run`.
        """
        rows = self._ask(f"EXPLAIN ESTIMATE {sql}", marker, wall, self._budget.seconds).rows.to_pylist()
        if not rows:
            return Estimate(None)
        total = sum(int(row["rows"]) for row in rows)
        if total > self._budget.read_rows:
            raise Rejected(*_DEAR)
        if total > self._budget.seconds * self._budget.rows_per_second * self._budget.threads:
            raise Rejected(*_SLOW)
        return Estimate(total)

    def run(self, sql: str, marker: str, wall: Wall) -> Reply:
        """Run a statement.

        Raises:
            Rejected: It ran into a limit, or the engine does not take it.
            Retryable: The store is away or busy.
        """
        return self._ask(sql, marker, wall, self._budget.seconds)

    def _ask(self, sql: str, marker: str, wall: Wall, seconds: float) -> Reply:
        question = Question(
            sql,
            marker,
            seconds,
            limits=limits_of(self._budget, seconds),
            filters=wall.filters,
            shared=wall.shared,
            scope=wall.told,
            quota=",".join(wall.told["tenants"]),
        )
        try:
            return self._store.ask(question)
        except Retryable:
            raise
        except SecondsightError as error:
            raise shown(error, marker) from None


def limits_of(budget: Budget, seconds: float) -> dict[str, Any]:
    """Return the settings under which every question runs."""
    return {
        "max_threads": budget.threads,
        "priority": QUESTION_PRIORITY,
        "max_execution_time": seconds,
        "timeout_overflow_mode": "throw",
        "max_memory_usage": budget.memory_bytes,
        "max_rows_to_read": budget.read_rows,
        "max_bytes_to_read": budget.read_bytes,
        "read_overflow_mode": "throw",
        "max_result_bytes": budget.result_bytes,
        "result_overflow_mode": "throw",
        "max_rows_in_join": 20_000_000,
        "join_overflow_mode": "throw",
        "max_rows_to_group_by": 20_000_000,
        "group_by_overflow_mode": "throw",
        "max_rows_in_set": 5_000_000,
        "set_overflow_mode": "throw",
        "max_subquery_depth": 60,
        "max_ast_depth": 500,
        "max_ast_elements": 50_000,
        "max_expanded_ast_elements": 200_000,
        "max_query_size": 1 << 20,
        "max_temporary_columns": 2_000,
        "use_query_cache": 0,
        **EXACT,
        "do_not_merge_across_partitions_select_final": 1,
        "output_format_arrow_compression_method": "none",
        "output_format_arrow_string_as_string": 1,
        "log_queries": 0,
    }


def wall_of(scope: Scope, tables: Sequence[str], *, shared: bool) -> Wall:
    """Return the wall around a caller; see `Wall`."""
    predicate = " OR ".join(_admits(box) for box in scope.boxes)
    told: dict[str, Sequence[str]] = {"tenants": scope.all_tenant_ids}
    if all(box.clusters is not None for box in scope.boxes):
        told["clusters"] = _clusters(scope)
    return Wall(dict.fromkeys(tables, predicate), told, shared)


def shown(error: SecondsightError, marker: str) -> Rejected:
    """Return what may be said of a failure, and log its code."""
    if isinstance(error, QueryLimited):
        return Rejected(*_LIMITED.get(error.engine_code, _FAILED))
    if isinstance(error, StatementFailed):
        _log.warning("question %s failed in the engine: %s (%d)", marker, error.name or "error", error.engine_code)
        return Rejected(*(_DEAR if error.engine_code in _TOO_COMPLEX else _FAILED))
    if isinstance(error, Rejected):
        return error
    _log.warning("question %s failed: %s", marker, type(error).__name__)
    return Rejected(*_FAILED)


def _admits(box: Scope) -> str:
    sets = (
        ("cluster_id", box.clusters),
        ("owner_team", box.teams),
        ("job_id", box.jobs),
        ("model_id", box.model_ids),
    )
    narrowed = [f"tenant_id IN ({_list(box.tenant_ids)})"]
    narrowed += [_within(column, values) for column, values in sets if values is not None]
    return f"({' AND '.join(narrowed)})"


def _within(column: str, values: frozenset[str]) -> str:
    named = sorted(values - {""})
    return f"{column} IN ({_list(named)})" if named else "0"


def _list(names: Sequence[str]) -> str:
    return ", ".join(literal(name) for name in names)


def _clusters(scope: Scope) -> list[str]:
    return sorted({cluster for box in scope.boxes for cluster in box.clusters or ()})
