"""Turn the metric catalogue into the tables of the hot store.

Tables grow and never shrink: a metric that left the catalogue keeps its column. Values are stored integers; physical
value = stored x the metric's resolution.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from secondsight.catalog.members import Holds, Member, members
from secondsight.catalog.metric import DTYPES, Metric
from secondsight.model import EntityKind
from secondsight.store.clusters import CLUSTER_KINDS, cluster_table
from secondsight.store.coarse import FINEST, LEVELS, Level, coarse_table, made_tables
from secondsight.store.codecs import NOISE, codec_of
from secondsight.store.deployment import EMBEDDED, Deployment
from secondsight.store.layout import (
    RAW_KEY,
    RAW_ORDER,
    RAW_PARTITION,
    ROLLUP_KEY,
    ROLLUP_ORDER,
    ROLLUP_PARTITION,
    WIDE_SETTINGS,
    fixed_tables,
)
from secondsight.store.spec import ColumnSpec, TableSpec, quoted

DATABASE = "secondsight"

_COLUMN_HOLDS = frozenset({Holds.VALUE, Holds.WEIGHTED_SUM, Holds.INCREASE})


class Scalars(Protocol):
    """What this module asks of a catalogue."""

    def scalars(self, kind: EntityKind) -> Sequence[Metric]:
        """Return the metrics of a kind that have a column of their own, in a stable order."""
        ...


def raw_table(kind: EntityKind) -> str:
    """Return the name of the table of 1 s rows of a kind."""
    return f"{kind.value}_1s"


def rollup_table(kind: EntityKind, resolution: str = FINEST) -> str:
    """Return the name of the rollup table of a kind at a resolution."""
    return f"{kind.value}_{resolution}"


def tables(catalog: Scalars) -> tuple[TableSpec, ...]:
    """Return every table of the hot store: raw and rollups of each kind, those of clusters, then the fixed ones."""
    raws = tuple(_raw(kind, catalog.scalars(kind)) for kind in EntityKind)
    rollups = tuple(_rollup(kind, catalog.scalars(kind)) for kind in EntityKind)
    coarse = tuple(_coarse(kind, level, catalog.scalars(kind)) for level in LEVELS for kind in EntityKind)
    pooled = tuple(cluster_table(kind, level, catalog.scalars(kind)) for level in LEVELS for kind in CLUSTER_KINDS)
    return (*raws, *rollups, *coarse, *pooled, *fixed_tables(), *made_tables())


def table(catalog: Scalars, name: str) -> TableSpec:
    """Return one table by name.

    Raises:
        KeyError: There is no such table.
    """
    return {spec.name: spec for spec in tables(catalog)}[name]


def create_statements(catalog: Scalars, database: str = DATABASE, deployment: Deployment = EMBEDDED) -> dict[str, str]:
    """Return table -> the statement that creates it where it is missing; safe to run twice."""
    return {
        spec.name: deployment.of(spec).create_statement(database, deployment.on_cluster) for spec in tables(catalog)
    }


def create_database(database: str, deployment: Deployment = EMBEDDED) -> str:
    """Return the statement that creates the database where it is missing."""
    return f"CREATE DATABASE IF NOT EXISTS {quoted(database)}{deployment.on_cluster}"


def alter_statements(
    existing: Mapping[str, frozenset[str]],
    catalog: Scalars,
    database: str = DATABASE,
    deployment: Deployment = EMBEDDED,
) -> tuple[str, ...]:
    """Return the statements that add missing columns, one per table that lacks any.

    Args:
        existing: Table name -> names of its columns, as the store has them; tables it lacks are left out.
        catalog: What the tables should hold.
        database: Database of the tables.
        deployment: Where they stand.
    """
    place = deployment.on_cluster
    statements = (
        _add_columns(spec, existing[spec.name], database, place) for spec in tables(catalog) if spec.name in existing
    )
    return tuple(statement for statement in statements if statement)


def setting_statements(
    engines: Mapping[str, str], catalog: Scalars, database: str = DATABASE, deployment: Deployment = EMBEDDED
) -> tuple[str, ...]:
    """Return the statements that bring settings up to date, one per table that has others.

    Args:
        engines: Table name -> its engine with keys and settings, as the store has it; tables it lacks are left out.
        catalog: What the tables should hold.
        database: Database of the tables.
        deployment: Where they stand.
    """
    statements = []
    for spec in map(deployment.of, tables(catalog)):
        engine = engines.get(spec.name)
        settings = (f"{name} = {value}" for name, value in spec.settings)
        other = [setting for setting in settings if engine is not None and setting not in engine]
        if other:
            name = f"{quoted(database)}.{quoted(spec.name)}{deployment.on_cluster}"
            statements.append(f"ALTER TABLE {name} MODIFY SETTING {', '.join(other)}")
    return tuple(statements)


def fingerprint(catalog: Scalars) -> int:
    """Return 64 bits that change when any table's DDL does."""
    text = "\n".join(spec.create_statement(DATABASE) for spec in tables(catalog))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def raw_column(metric: Metric) -> ColumnSpec:
    """Return the column of a scalar metric in its raw table."""
    return ColumnSpec(metric.name, f"Nullable({metric.clickhouse_type})", codec_of(metric))


def member_columns(metric: Metric) -> tuple[ColumnSpec, ...]:
    """Return the columns of a scalar metric in its rollup table; what is mostly the same or 0 is kept in maps."""
    return tuple(_member_column(metric, member) for member in members(metric) if member.holds in _COLUMN_HOLDS)


def _raw(kind: EntityKind, metrics: Sequence[Metric]) -> TableSpec:
    columns = (*RAW_KEY, *(raw_column(metric) for metric in metrics))
    return TableSpec(raw_table(kind), columns, "ReplacingMergeTree(version)", RAW_ORDER, RAW_PARTITION, WIDE_SETTINGS)


def _rollup(kind: EntityKind, metrics: Sequence[Metric]) -> TableSpec:
    members = (column for metric in metrics for column in member_columns(metric))
    return TableSpec(
        rollup_table(kind),
        (*ROLLUP_KEY, *members),
        "ReplacingMergeTree(version)",
        ROLLUP_ORDER,
        ROLLUP_PARTITION,
        WIDE_SETTINGS,
    )


def _coarse(kind: EntityKind, level: Level, metrics: Sequence[Metric]) -> TableSpec:
    return coarse_table(kind, level, metrics, {metric.name: member_columns(metric) for metric in metrics})


def _member_column(metric: Metric, member: Member) -> ColumnSpec:
    dtype = member.dtype(metric)
    codec = NOISE if member.holds is Holds.INCREASE and dtype != "f64" else codec_of(metric)
    return ColumnSpec(member.column(metric), f"Nullable({DTYPES[dtype]})", codec)


def _add_columns(spec: TableSpec, existing: frozenset[str], database: str, on_cluster: str) -> str:
    missing = [column for column in spec.columns if column.name not in existing]
    if not missing:
        return ""
    adds = ", ".join(f"ADD COLUMN IF NOT EXISTS {column.ddl}" for column in missing)
    return f"ALTER TABLE {quoted(database)}.{quoted(spec.name)}{on_cluster} {adds}"
