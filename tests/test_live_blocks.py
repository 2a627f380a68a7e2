"""Blocks of the live window hold of each key its newest version, however rows came, sealed or not."""

import random

import numpy as np
import pytest

from secondsight.live.block import Batch, Column, LiveBlock, batch_of, memory_of, packed
from secondsight.live.names import Pairs

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
