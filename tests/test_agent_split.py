"""Contents divided by class say together what the whole says: as cells, and as rows and rollups of a real processor."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from process_rig import BOOT, CATALOG, T0, Rig, content_of
from secondsight.agent.write.split import Splitter
from secondsight.catalog.metric import MetricType
from secondsight.model import EntityKind, Priority, Quality
from secondsight.wire.content import Content, Event, HistogramColumn, HistogramRows, Info
from secondsight.wire.frame import Stamp, decode, encode
from secondsight.wire.schema import Definitions, make_schema

SPLITTER = Splitter(CATALOG)
GPU = [metric.name for metric in CATALOG.scalars(EntityKind.GPU)][::4]
HISTOGRAMS = [m for m in CATALOG.of_kind(EntityKind.INFERENCE) if m.type is MetricType.HISTOGRAM]
INFERENCE = [metric.name for metric in CATALOG.scalars(EntityKind.INFERENCE)]
CELLS = st.one_of(
    st.integers(1, 100),
    st.sampled_from([Quality.ABSENT_NOT_SUPPORTED, Quality.BAD_RANGE, Quality.STALE]),
    st.tuples(st.integers(1, 100), st.just(Quality.ESTIMATE)),
)
ROWS = st.dictionaries(
    st.tuples(st.sampled_from(["GPU-a", "GPU-b"]), st.sampled_from(["", "link=0"]), st.integers(0, 1)),
    st.dictionaries(st.sampled_from(GPU), CELLS, max_size=8),
    min_size=1,
    max_size=6,
)


def cells(content: Content) -> dict:
    """Return {(entity, part, tick): {metric: (value, quality)}} of a content."""
    block, found = content.scalars, {}
    if block is None:
        return found
    subjects = [
        (content.entities.entities[entity].entity, content.entities.entities[entity].part, int(tick))
        for entity, tick in zip(block.entity_index, block.tick_index, strict=True)
    ]
    quality = {
        (int(row), int(column)): Quality(code)
        for row, column, code in zip(block.quality_row, block.quality_column, block.quality, strict=True)
    }
    for row, subject in enumerate(subjects):
        found[subject] = {}
        for group in block.groups:
            for place in range(len(group.values)):
                number = group.first_column + place
                present = group.present is None or bool(group.present[place, row])
                code = quality.get((row, number), Quality.OK if present else Quality.NONE)
                if present or code is not Quality.NONE:
                    value = group.values[place, row].item() if present else None
                    found[subject][content.schema.columns[number].metric] = (value, code)
    return found


def stamp(sequence: int = 0, tick: int = T0, **changes) -> Stamp:
    made = Stamp("c1", "h1", "nvml", 7, sequence, sequence, np.array([tick], np.int64), 1000, BOOT)
    return replace(made, **changes)


@settings(max_examples=150, deadline=None)
@given(ROWS)
def test_pieces_hold_every_cell_once_in_its_class(rows):
    whole = content_of(rows, ticks=[T0, T0 + 1000], names=GPU)
    pieces = SPLITTER.split(whole)
    united = {}
    for priority, piece in pieces.items():
        assert {CATALOG.get(column.metric).priority for column in piece.schema.columns} <= {priority}
        made = encode(stamp(tick_times_ms=np.array([T0, T0 + 1000])), piece, inline=True)
        read = decode(made, Definitions()).content
        for subject, known in cells(read).items():
            assert not united.get(subject, {}).keys() & known.keys()
            united.setdefault(subject, {}).update(known)
    assert united == cells(whole)
    for subject, known in cells(whole).items():
        holders = [priority for priority, piece in pieces.items() if subject in cells(piece)]
        assert holders == sorted({CATALOG.get(name).priority for name in known} or {min(pieces)})


def test_events_and_facts_go_with_the_first_class():
    event, info = Event("gpu_xid", "GPU-a", "", T0, 79), Info("gpu_info", "GPU-a", "", T0, {"a": "b"})
    only = content_of({}, ticks=[T0], names=[name for name in GPU if CATALOG.get(name).priority > 0][:1])
    pieces = SPLITTER.split(replace(only, events=(event,), infos=(info,)))
    assert {priority: (piece.events, piece.infos) for priority, piece in pieces.items()} == {
        Priority.P0: ((event,), (info,))
    }
    assert SPLITTER.split(only) == {}


def test_a_metric_that_the_catalogue_does_not_know_is_of_the_last_class():
    whole = content_of({("GPU-a", "", 0): {GPU[0]: 1}}, ticks=[T0])
    renamed = make_schema(whole.schema.kind, [replace(whole.schema.columns[0], metric="gpu_new")])
    assert list(SPLITTER.split(replace(whole, schema=renamed))) == [Priority.P2]


def gpu_content(chance: random.Random, number: int) -> Content:
    rows = {
        (gpu, part, 0): {
            name: chance.choice([number + 1, chance.randint(1, 50), Quality.STALE, None])
            for name in GPU
            if not part or CATALOG.get(name).labels
        }
        for gpu in ("GPU-a", "GPU-b")
        for part in ("", "link=1")
    }
    events = (Event("gpu_xid", "GPU-a", "", T0 + 1000 * number, 31),) if number % 7 == 0 else ()
    return content_of(rows, ticks=[T0], names=GPU, events=events)


def inference_content(chance: random.Random, number: int) -> Content:
    whole = content_of(
        {("engine", "", 0): {name: chance.randint(0, 9) for name in INFERENCE}},
        kind=EntityKind.INFERENCE,
        ticks=[T0],
        names=INFERENCE,
    )
    columns = [HistogramColumn(metric.name, metric.unit, (0.1, 1.0)) for metric in HISTOGRAMS]
    schema = make_schema(EntityKind.INFERENCE, whole.schema.columns, columns)
    zero = np.zeros(1, np.uint32)
    rows = tuple(
        HistogramRows(
            place,
            zero,
            zero.astype(np.uint16),
            np.array([[number, 2 * number, 3 * number]], np.uint64),
            np.array([0.5 * number]),
            np.array([T0 - 1000], np.int64),
        )
        for place in range(len(schema.histograms))
    )
    return replace(whole, schema=schema, histograms=rows)


def tables_of(store, tenant: str) -> list:
    """Return everything stored of a tenant, but for which frame it came in."""
    found = []
    for table in ("gpu_1s", "gpu_30s", "inference_1s", "inference_30s", "histograms_1s", "events"):
        rows = store.query(f"SELECT * FROM {table} FINAL WHERE tenant_id = {{t:String}} ORDER BY ALL", {"t": tenant})
        drop = {"tenant_id", "version", "spool_id", "sequence", "schema_id", "ingest_time"}
        kept = [{name: value for name, value in row.items() if name not in drop} for row in rows.to_pylist()]
        assert kept, table
        found.append((table, sorted(kept, key=repr)))
    return found


def send(store, tenant: str, frames: list[bytes]) -> Rig:
    rig = Rig(store)
    for body in frames:
        rig.clock.move(0.05)
        rig.send(body, T0 + 90_000, tenant=tenant)
        rig.processor.step()
    rig.settle()
    return rig


def test_rows_rollups_and_coverage_are_those_of_undivided_frames(store):
    chance = random.Random(3)
    whole, divided = [], []
    for number in range(40):
        for content in (gpu_content(chance, number), inference_content(chance, number)):
            marked = stamp(number, T0 + 1000 * number)
            whole.append(encode(marked, content, inline=True))
            divided.append(
                [
                    encode(replace(marked, spool_id=10 + priority), piece, inline=True)
                    for priority, piece in SPLITTER.split(content).items()
                ]
            )
    send(store, "whole", whole)
    send(store, "divided", [piece for pieces in divided for piece in pieces])
    late = [[pieces[-1] for pieces in divided], [piece for pieces in divided for piece in pieces[:-1]]]
    send(store, "last-class-first", [piece for half in late for piece in half])
    overtaking = [
        encode(replace(stamp(number // 2, T0 + 1000 * (number // 2)), spool_id=10, live=True), pieces[0], inline=True)
        for number, contents in enumerate(zip(divided, strict=True))
        for pieces in ([decode(piece, Definitions()).content for piece in contents[0]],)
    ]
    send(store, "first-class-overtakes", overtaking + [piece for pieces in divided for piece in pieces[1:]])
    expected = tables_of(store, "whole")
    for tenant in ("divided", "last-class-first", "first-class-overtakes"):
        assert tables_of(store, tenant) == expected, tenant
