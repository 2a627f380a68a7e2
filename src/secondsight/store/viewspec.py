"""Describe one curated view over one table: its columns, and the statement that makes it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from secondsight.catalog.metric import Metric
from secondsight.store.deployment import EMBEDDED, Deployment
from secondsight.store.params import literal
from secondsight.store.spec import quoted

BUCKET = "time_bucket"
MAYBE = "Nullable(Float64)"
OWNERS = ("job_id", "workload_id", "owner_team", "model_id")
OWNER_WORDS = {
    "job_id": "job that the GPU was allocated to; empty for none",
    "workload_id": "workload that the job belongs to",
    "owner_team": "team that the GPU was allocated to",
    "model_id": "AI model that runs",
}


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """One column of a view.

    Attributes:
        expression: Over the table `t`.
        shared: The same where several collectors report the GPU; "" where it is no other.
        metric: Metric that it is a figure of, or "".
        suffix: Member of its rollup, "" for a sampled value.
        description: What it says, in words.
    """

    name: str
    type: str
    expression: str
    shared: str = ""
    metric: str = ""
    suffix: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """One view over one table.

    Attributes:
        time_column: The one time of a row.
        grain_seconds: Width of a row's window, 0 for events.
        where: Predicates over the table `t`.
        shared_tail: Clause that ends the branch of GPUs which several collectors report; "" where rows are settled.
        bucket_seconds: Widths that `time_bucket` is cut down to; 0 where it is no fixed width.
    """

    name: str
    table: str
    description: str
    columns: tuple[ViewColumn, ...]
    time_column: str
    grain_seconds: int
    where: tuple[str, ...] = ()
    shared_tail: str = ""
    bucket_seconds: int = 0

    def fingerprint(self, deployment: Deployment = EMBEDDED) -> str:
        """Return a text that changes with the definition."""
        return hashlib.blake2b(f"{self!r} {deployment.definer}".encode(), digest_size=8).hexdigest()

    def create_statement(self, tables: str, database: str, deployment: Deployment = EMBEDDED) -> str:
        """Return the statement that makes the view, in place of what was called so.

        Args:
            tables: Database of the tables.
            database: Where the view is made; in another one than the tables' it settles several collectors.
            deployment: Where they stand.
        """
        rights = f" DEFINER = {quoted(deployment.definer)} SQL SECURITY DEFINER" if deployment.definer else ""
        name = f"{quoted(database)}.{quoted(self.name)}{deployment.on_cluster}"
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)
        body = self._rows(tables) if database == tables or not self.shared_tail else self._settled_rows(tables)
        comment = literal(self.fingerprint(deployment))
        return f"CREATE OR REPLACE VIEW {name} ({columns}){rights} AS {body} COMMENT {comment}"

    def _rows(self, tables: str, *where: str) -> str:
        columns = [f"{column.expression} AS {quoted(column.name)}" for column in self.columns]
        return self._select(tables, columns, where)

    def _settled_rows(self, tables: str) -> str:
        columns = [f"{column.shared or column.expression} AS {quoted(column.name)}" for column in self.columns]
        several = (
            f"(SELECT entity FROM {quoted(tables)}.entities WHERE kind = 'gpu' "  # noqa: S608 - a quoted name
            "GROUP BY tenant_id, entity HAVING uniqExact(collector_id) > 1)"
        )
        settled = self._select(tables, columns, [f"t.entity IN {several}"])
        return f"{self._rows(tables, f't.entity NOT IN {several}')} UNION ALL {settled} {self.shared_tail}"

    def _select(self, tables: str, columns: Sequence[str], where: Sequence[str]) -> str:
        source = f"{quoted(tables)}.{quoted(self.table)} AS t FINAL"
        predicates = [*self.where, *where]
        condition = f" WHERE {' AND '.join(predicates)}" if predicates else ""
        return f"SELECT {', '.join(columns)} FROM {source}{condition}"  # noqa: S608 - names and literals of this module


def scaled(column: str, metric: Metric) -> str:
    """Return the physical value of a stored one, by the same steps as `catalog.scale.physical_array`."""
    if metric.resolution == 0:
        return f"toFloat64({column})"
    step = Fraction(str(metric.resolution))
    times = f" * {float(step.numerator)!r}" if step.numerator != 1 else ""
    over = f" / {float(step.denominator)!r}" if step.denominator != 1 else ""
    return f"toFloat64({column}){times}{over}"


def member(metric: Metric, suffix: str) -> str:
    """Return the column of the table `t` that holds a member of a metric."""
    return f"t.{quoted(f'{metric.name}_{suffix}')}"


def milliseconds(what: str, name: str) -> str:
    """Return the milliseconds of a metric in a row of `t`: those that are kept because they differ, else the row's.

    Args:
        what: `covered` or `increase`.
        name: The metric.
    """
    key = literal(name)
    return f"if(mapContains(t.{what}_other, {key}), t.{what}_other[{key}], t.covered_ms)"
