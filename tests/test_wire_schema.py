"""Definitions are canonical, named by their bytes, bounded, and forgotten oldest first."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.errors import Rejected
from secondsight.model import EntityKind
from secondsight.wire.content import Column, Entity, EntityTable
from secondsight.wire.schema import (
    Definitions,
    definition_hash,
    entity_table_blob,
    group_layouts,
    make_schema,
    parse_entity_table,
    parse_schema,
    schema_blob,
)
from wire_strategies import entity_tables, kinds, schemas

POWER = Column("gpu_power_watts", "W", "u32", 0.001)
UTILISATION = Column("gpu_utilization_ratio", "1", "u8", 0.01)
ENERGY = Column("gpu_energy_joules_total", "J", "u64", 0.001)


@settings(max_examples=200, deadline=None)
@given(kinds.flatmap(schemas), kinds.flatmap(entity_tables))
def test_blobs_give_back_what_was_written(schema, table):
    assert parse_schema(schema_blob(schema)) == schema
    assert parse_entity_table(entity_table_blob(table)) == table


def test_the_names_of_definitions_are_frozen():
    schema = make_schema(EntityKind.GPU, [UTILISATION, POWER, ENERGY])
    table = EntityTable(EntityKind.GPU, "host-1", "rack-1", (Entity("GPU-1", "", (("index", "0"),)),))
    assert schema_blob(schema) == (
        b'{"type":"schema","kind":"gpu","columns":[["gpu_energy_joules_total","J","u64",0.001],'
        b'["gpu_power_watts","W","u32",0.001],["gpu_utilization_ratio","1","u8",0.01]],"histograms":[]}'
    )
    assert entity_table_blob(table) == (
        b'{"type":"entities","kind":"gpu","host_id":"host-1","rack":"rack-1","entities":[["GPU-1","",[["index","0"]]]]}'
    )
    assert definition_hash(schema_blob(schema)).hex() == "000b4e559b0747c2c818e142466e61bd"


def test_columns_are_grouped_widest_first():
    schema = make_schema(EntityKind.GPU, [UTILISATION, POWER, ENERGY])
    assert [(layout.dtype.itemsize, layout.first_column) for layout in group_layouts(schema)] == [
        (8, 0),
        (4, 1),
        (1, 2),
    ]


def changed(**fields):
    base = json.loads(schema_blob(make_schema(EntityKind.GPU, [UTILISATION, POWER, ENERGY])))
    return json.dumps(base | fields).encode()


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        changed(type="entities"),
        changed(kind="toaster"),
        changed(kind=["gpu"]),
        changed(columns=None),
        changed(columns=[["b", "", "u8", 1], ["a", "", "u8", 1]]),
        changed(columns=[["a", "", "u8", 1], ["b", "", "u64", 1]]),
        changed(columns=[["a", "", "u8", 1], ["a", "", "u8", 1]]),
        changed(columns=[["a", "", "u64", 1], ["a", "", "u8", 1]]),
        changed(columns=[["", "", "u8", 1]]),
        changed(columns=[["a", "", "u7", 1]]),
        changed(columns=[["a", "", ["u8"], 1]]),
        changed(columns=[["a", "", "u8", 0]]),
        changed(columns=[["a", "", "u8", -1]]),
        changed(columns=[["a", "", "f64", 1]]),
        changed(columns=[["a", "", "u8", True]]),
        changed(columns=[["a", "", "u8", "1"]]),
        changed(columns=[["a", "", "u8", 10**400]]),
        changed(columns=[["a", "", "u8"]]),
        changed(columns=[["a" * 513, "", "u8", 1]]),
        changed(columns=[["a\0", "", "u8", 1]]),
        b'{"type":"schema","kind":"gpu","columns":[["\\ud800","","u8",1]],"histograms":[]}',
        b'{"type":"schema","kind":"gpu","columns":[["a","","u8",NaN]],"histograms":[]}',
        b'{"type":"schema","kind":"gpu","columns":[["a","","u8",1e999]],"histograms":[]}',
        changed(columns=[[f"m{number:05}", "", "u8", 1] for number in range(4097)]),
        changed(histograms=[["h", "s", [2.0, 1.0]]]),
        changed(histograms=[["h", "s", [1.0, 1.0]]]),
        changed(columns=[["h", "s", "u8", 1]], histograms=[["h", "s", [1.0]]]),
    ],
)
def test_wrong_schemas_are_refused(blob):
    with pytest.raises(Rejected) as caught:
        parse_schema(blob)
    assert caught.value.code == "bad_schema"


@pytest.mark.parametrize(
    "entities",
    [
        [["a", "", []], ["a", "", []]],
        [["a", ""]],
        [["a", "", [["k", "v"], ["k", "w"]]]],
        [["a", "", [["k", 1]]]],
        [["a", "", {}]],
        [[1, "", []]],
        [[f"{number}", "", []] for number in range(65537)],
    ],
)
def test_wrong_entity_tables_are_refused(entities):
    blob = json.dumps({"type": "entities", "kind": "gpu", "host_id": "h", "rack": "r", "entities": entities}).encode()
    with pytest.raises(Rejected) as caught:
        Definitions().add(blob)
    assert caught.value.code == "bad_schema"


@settings(max_examples=50, deadline=None)
@given(st.lists(kinds.flatmap(schemas), min_size=1, max_size=8), st.integers(1, 4))
def test_definitions_keep_the_newest(found, max_entries):
    definitions = Definitions(max_entries)
    for schema in found:
        assert definitions.schema(definitions.add(schema_blob(schema))) == schema
    names = list(dict.fromkeys(definition_hash(schema_blob(schema)) for schema in reversed(found)))
    known = [definitions.schema(name) is not None for name in names]
    assert sum(known) == min(max_entries, len(names))
    assert known[0]


def test_definitions_of_one_kind_are_not_taken_for_the_other():
    definitions = Definitions()
    schema = definitions.add(schema_blob(make_schema(EntityKind.GPU, [])))
    table = definitions.add(entity_table_blob(EntityTable(EntityKind.GPU, "h", "r", ())))
    assert definitions.entities(schema) is None
    assert definitions.schema(table) is None
    assert definitions.schema(bytes(16)) is None
