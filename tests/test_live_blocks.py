"""Blocks of the live window hold of each key its newest version, however rows came, sealed or not."""

import random

import numpy as np
import pyarrow as pa
import pytest

from query_fixture import scope_of
from secondsight.live.block import Batch, Column, LiveBlock, batch_of, memory_of, packed
from secondsight.live.names import Pairs
from secondsight.live.shape import OWNER, SERIES, raw_shape
from secondsight.live.table import LiveTable
from secondsight.model import EntityKind

Key = tuple[int, int]
Kept = dict[Key, tuple[int, int, int | None]]


def made(chosen: random.Random, kept: Kept) -> Batch:
    """Return random rows, and note what is to be kept of them; some columns hold one value throughout."""
    size, is_even = chosen.randrange(1, 30), chosen.random() < 0.5
    keys = [(chosen.randrange(6), 1000 * chosen.randrange(30)) for _ in range(size)]
    versions = [3 if is_even else chosen.randrange(4) for _ in keys]
    values = [7 if is_even else chosen.randrange(100) for _ in keys]
    some = {row: 5 if is_even else chosen.randrange(9) for row in range(size) if chosen.random() < 0.6}
    for row, (key, version) in enumerate(zip(keys, versions, strict=True)):
        if key not in kept or version >= kept[key][0]:
            kept[key] = (version, values[row], some.get(row))
    columns = {"whole": Column(None, packed(np.array(values)))}
    if some:
        columns["some"] = Column(np.array(list(some), np.int32), packed(np.array(list(some.values()))))
    series, t = (np.array(half) for half in zip(*keys, strict=True))
    version = packed(np.array(versions, np.uint64)), packed(np.zeros(size, np.uint64))
    owner = packed(np.zeros(size, np.int32))
    return batch_of(series.astype(np.int32), owner, t.astype(np.int64), version, columns)


def told(block: LiveBlock) -> dict[Key, tuple[int, int | None]]:
    some = block.column("some")
    rows = range(block.size) if some.rows is None else some.rows.tolist()
    sparse = dict(zip(rows, np.asarray(some.values).tolist(), strict=True))
    keys = list(zip(block.series.tolist(), block.t.tolist(), strict=True))
    assert keys == sorted(keys)
    whole = block.column("whole").values.tolist()
    return {key: (whole[row], sparse.get(row)) for row, key in enumerate(keys)}


@pytest.mark.parametrize("seed", range(40))
def test_a_block_keeps_the_newest_of_each_key_also_when_rows_come_after_it_was_sealed(seed: int) -> None:
    chosen, kept = random.Random(seed), Kept()
    block = LiveBlock(0, 30_000, [made(chosen, kept) for _ in range(chosen.randrange(1, 5))], is_owned=False)
    for _ in range(3):
        assert told(block) == {key: one[1:] for key, one in kept.items()}
        block.seal()
        assert told(block) == {key: one[1:] for key, one in kept.items()}
        block = LiveBlock(0, 30_000, (*block.batches, made(chosen, kept)), is_owned=False)


def test_one_value_that_stands_for_all_takes_the_memory_of_one() -> None:
    assert memory_of(packed(np.full(1_000, 5))) == 8
    assert memory_of(packed(np.arange(1_000))) == 8_000


@pytest.mark.parametrize("seed", range(10))
def test_a_pair_has_one_number_and_keeps_it(seed: int) -> None:
    chosen, pairs = np.random.default_rng(seed), Pairs()
    known: dict[Key, int] = {}
    for _ in range(20):
        size, most = chosen.integers(0, 60), chosen.integers(1, 50, 2)
        firsts, seconds = (chosen.integers(0, high, size).astype(np.int32) for high in most)
        codes = pairs.codes(firsts, seconds).tolist()
        for key, code in zip(zip(firsts.tolist(), seconds.tolist(), strict=True), codes, strict=True):
            assert known.setdefault(key, code) == code
    assert {code: key for key, code in known.items()} == dict(
        enumerate(zip(pairs.firsts.tolist(), pairs.seconds.tolist(), strict=True))
    )


def rows_with_map(second: int, kind: pa.DataType) -> pa.Table:
    """Return one stored row of one second, with a map of a type."""
    told = {name: [f"{name}-1"] for name in (*SERIES, *OWNER)} | {"part": [""]}
    numbers = {name: [1] for name in ("version_hi", "version_lo", "interval_ms", "source_rank")}
    at = pa.array([second * 1000], pa.timestamp("ms", "UTC"))
    columns = {name: pa.array(values) for name, values in told.items()}
    columns |= {name: pa.array(values, pa.uint64()) for name, values in numbers.items()}
    return pa.table(columns | {"event_time": at, "quality": pa.array([[("gpu_power_watts", second)]], kind)})


def test_maps_are_joined_whether_a_stream_or_a_statement_told_them() -> None:
    table = LiveTable(raw_shape(EntityKind.GPU))
    table.begin(0, ["gpu_power_watts"])
    table.trust()
    never_absent = pa.field("value", pa.uint32(), nullable=False)
    for second, kind in enumerate((pa.map_(pa.string(), pa.uint32()), pa.map_(pa.string(), never_absent))):
        table.add(rows_with_map(second, kind))
    reading = table.reading(scope_of("tenant_id-1"), ["gpu_power_watts"], {}, 0, 30_000)
    assert reading is not None
    [block] = reading.blocks
    assert block.column("quality").values.to_pylist() == [[("gpu_power_watts", second)] for second in range(2)]
