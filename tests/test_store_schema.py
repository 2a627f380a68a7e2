import re
from pathlib import Path

import pytest

from secondsight.catalog.index import build
from secondsight.catalog.load import Catalog, load_catalog, parse
from secondsight.catalog.members import Holds, members
from secondsight.model import EntityKind
from secondsight.store import codecs
from secondsight.store.deployment import Deployment
from secondsight.store.schema import (
    DATABASE,
    alter_statements,
    create_database,
    create_statements,
    fingerprint,
    member_columns,
    raw_table,
    rollup_table,
    table,
    tables,
)
from secondsight.store.spec import ColumnSpec, quoted

CASES = Path(__file__).parent / "cases" / "store"
REAL = load_catalog()


@pytest.fixture
def small() -> Catalog:
    return build(parse((CASES / "catalog.toml").read_text(), "gpu.toml"))


def test_statements_are_as_reviewed(small: Catalog, request: pytest.FixtureRequest) -> None:
    got = ";\n\n".join((create_database(DATABASE), *create_statements(small).values())) + ";\n"
    expected = CASES / "tables.sql"
    if request.config.getoption("--rewrite"):
        expected.write_text(got)
    assert got == expected.read_text()


def test_a_server_remembers_inserts_and_a_cluster_replicates(small: Catalog) -> None:
    server = create_statements(small, "d", Deployment(server=True))["gpu_1s"]
    assert server.endswith(", non_replicated_deduplication_window = 1000")
    cluster = Deployment(server=True, cluster="east`1")
    made = create_statements(small, "d", cluster)["gpu_1s"]
    assert made.startswith("CREATE TABLE IF NOT EXISTS `d`.`gpu_1s` ON CLUSTER `east\\`1` (")
    assert "ENGINE = ReplicatedReplacingMergeTree(version)" in made
    assert "deduplication" not in made
    assert create_database("d", cluster) == "CREATE DATABASE IF NOT EXISTS `d` ON CLUSTER `east\\`1`"
    existing = {spec.name: frozenset(c.name for c in spec.columns[1:]) for spec in tables(small)}
    assert all(" ON CLUSTER `east\\`1` ADD " in each for each in alter_statements(existing, small, "d", cluster))


def test_every_kind_has_its_tables() -> None:
    names = [spec.name for spec in tables(REAL)]
    assert len(names) == len(set(names))
    for kind in EntityKind:
        assert {raw_table(kind), rollup_table(kind)} <= set(names)


@pytest.mark.parametrize("spec", tables(REAL), ids=lambda spec: spec.name)
def test_columns_are_unique_and_keys_exist(spec) -> None:
    names = [column.name for column in spec.columns]
    assert len(names) == len(set(names))
    for expression in (*spec.order, *spec.partition):
        assert set(re.findall(r"[a-z_0-9]+(?=[,)]|$)", expression)) <= set(names)


@pytest.mark.parametrize("kind", EntityKind)
def test_only_legal_members_have_columns(kind: EntityKind) -> None:
    columns = {column.name for column in table(REAL, rollup_table(kind)).columns}
    for metric in REAL.scalars(kind):
        kept = {column.name for column in member_columns(metric)}
        assert kept <= columns
        assert kept == {m.column(metric) for m in members(metric) if m.holds not in (Holds.EVENTS, Holds.SECONDS)}


def test_a_counter_has_no_mean(small: Catalog) -> None:
    columns = {column.name for column in table(small, "gpu_30s").columns}
    assert not {f"d_bytes_total_{member}" for member in ("avg", "sum", "min", "max")} & columns


def test_alterations_add_what_is_missing_and_nothing_else(small: Catalog) -> None:
    complete = {spec.name: frozenset(c.name for c in spec.columns) for spec in tables(small)}
    assert alter_statements(complete, small) == ()
    lacking = complete | {"gpu_1s": complete["gpu_1s"] - {"a_ratio", "f_state"} | {"left_the_catalogue"}}
    (statement,) = alter_statements(lacking, small)
    assert re.findall(r"ADD COLUMN IF NOT EXISTS `(\w+)`", statement) == ["a_ratio", "f_state"]
    assert "left_the_catalogue" not in statement


def test_tables_the_store_lacks_are_not_altered(small: Catalog) -> None:
    assert alter_statements({}, small) == ()


def test_the_fingerprint_follows_the_columns(small: Catalog) -> None:
    fewer = build(small.metrics[:-1])
    assert fingerprint(small) == fingerprint(build(small.metrics))
    assert fingerprint(small) != fingerprint(fewer)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a_ratio", codecs.NOISE),
        ("b_watts", codecs.NOISE),
        ("c_hertz", codecs.PLAIN),
        ("d_bytes_total", codecs.NOISE),
        ("e_seconds_total", codecs.TIMES),
        ("f_state", codecs.STEPS),
        ("g_loss", codecs.PLAIN),
    ],
)
def test_codecs_follow_how_a_metric_moves(small: Catalog, name: str, codec: str) -> None:
    assert codecs.codec_of(small.get(name)) == codec


def test_names_cannot_leave_their_quotes() -> None:
    assert quoted("a`; DROP TABLE t") == "`a\\`; DROP TABLE t`"
    assert ColumnSpec("v", "UInt8", "ZSTD(1)", "7").ddl == "`v` UInt8 DEFAULT 7 CODEC(ZSTD(1))"


def test_an_unknown_column_or_table_is_a_key_error(small: Catalog) -> None:
    with pytest.raises(KeyError):
        table(small, "nothing")
    with pytest.raises(KeyError):
        table(small, "gpu_1s").column("nothing")
