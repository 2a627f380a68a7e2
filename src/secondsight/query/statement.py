"""Turn clauses and values into one statement whose values are all bound parameters."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LIMITS: dict[str, Any] = {
    "max_execution_time": 20,
    "max_rows_to_read": 400_000_000,
    "max_result_rows": 3_000_000,
    "max_memory_usage": 4 << 30,
    "max_bytes_before_external_group_by": 1 << 30,
    "do_not_merge_across_partitions_select_final": 1,
}
"""Settings of every statement: seconds, rows and bytes that one question may cost."""

ONE_THREAD: dict[str, Any] = {"max_threads": 1}
"""More threads cost more than they gain where few rows are read."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement for `Store.query`, with its parameters and limits."""

    sql: str
    params: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=lambda: dict(LIMITS))


class Parameters:
    """Values of one statement; equal ones share a parameter."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, Any], str] = {}

    def bind(self, value: int | float | str, type_name: str) -> str:
        """Return the text that stands for a value in SQL."""
        return self._reference(value, type_name)

    def bind_texts(self, values: Iterable[str]) -> str:
        """Return the text that stands for a list of strings, sorted."""
        return self._reference(tuple(sorted(values)), "Array(String)")

    def bind_integers(self, values: Iterable[int]) -> str:
        """Return the text that stands for a list of integers, as they come."""
        return self._reference(tuple(values), "Array(Int64)")

    def among(self, named: Iterable[tuple[str, Collection[str]]]) -> list[str]:
        """Return the predicates that columns hold one of some texts each; those without any admit all."""
        return [f"{column} IN {self.bind_texts(texts)}" for column, texts in named if texts]

    def values(self) -> dict[str, Any]:
        """Return parameter name -> value."""
        return {name: list(value) if isinstance(value, tuple) else value for (_, value), name in self._names.items()}

    def _reference(self, value: Any, type_name: str) -> str:
        name = self._names.setdefault((type_name, value), f"p{len(self._names)}")
        return f"{{{name}:{type_name}}}"


def select(
    columns: Sequence[str],
    source: str,
    *,
    before: Sequence[str] = (),
    where: Sequence[str] = (),
    tail: Sequence[str] = (),
) -> str:
    """Write a SELECT in parentheses, so that it can be the source of another; `tail` is what follows WHERE.

    Predicates `before` it are tried on rows of a table of which nothing else is read yet.

    The source is a subquery in parentheses; tables are named by `scoped.py` alone.
    """
    clauses = [f"SELECT {', '.join(columns)}", f"FROM {source}"]
    if before:
        clauses.append(f"PREWHERE {' AND '.join(before)}")
    if where:
        clauses.append(f"WHERE {' AND '.join(where)}")
    return f"({' '.join([*clauses, *tail])})"
