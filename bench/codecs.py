"""Measure bytes per value of each codec on each way that a metric moves.

    python bench/codecs.py [FOLDER]          about half a minute

One column is written per shape and codec, ordered by GPU, then time. Stars mark the least bytes.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from secondsight.store import codecs
from secondsight.store.chdb import ChdbStore

GPUS = 64
SECONDS = 1800
SEED = 1
CODECS = (
    codecs.PLAIN,
    codecs.STEPS,
    codecs.TIMES,
    codecs.NOISE,
    "T64('bit'),ZSTD(1)",
    "Delta,T64('bit'),ZSTD(1)",
    "GCD,T64,ZSTD(1)",
)
TYPES = {"u1": "UInt8", "u2": "UInt16", "u4": "UInt32", "u8": "UInt64", "i2": "Int16"}
Shape = tuple[str, NDArray[Any]]


def shapes() -> Iterator[Shape]:
    """Yield (name, stored values of shape (gpus, seconds)) of each way to move."""
    rng = np.random.default_rng(SEED)
    level = rng.uniform(0.3, 0.8, (GPUS, 1))
    white = rng.normal(0, 1, (GPUS, SECONDS))
    smooth = _autoregressive(white)
    phases = np.cumsum(rng.random((GPUS, SECONDS)) < 0.01, axis=1) % 2
    yield from _ratios(rng, level, white, smooth, phases)
    yield from _rates_and_power(level, white, smooth, phases)
    yield from _counters(rng, level, smooth, phases)
    yield from _steps(rng, level, smooth, phases)


def _ratios(rng: np.random.Generator, level: Any, white: Any, smooth: Any, phases: Any) -> Iterator[Shape]:
    yield "ratio 1e-6, uniform", (rng.random((GPUS, SECONDS)) * 1e6).astype("u4")
    yield "ratio 1e-6, white noise", (np.clip(level + 0.06 * white, 0, 1) * 1e6).astype("u4")
    yield "ratio 1e-6, correlated noise", (np.clip(level + 0.1 * smooth, 0, 1) * 1e6).astype("u4")
    yield "ratio 1e-6, phases", (np.clip(phases * (level + 0.05 * white), 0, 1) * 1e6).astype("u4")
    yield "percent at 1e-4, phases", (np.round(100 * np.clip(phases * (level + 0.1 * smooth), 0, 1)) * 100).astype("u2")
    yield "percent at 1e-4, near full", (np.clip(np.round(97 + 2 * white), 0, 100) * 100).astype("u2")


def _rates_and_power(level: Any, white: Any, smooth: Any, phases: Any) -> Iterator[Shape]:
    yield "bytes a second, white noise", np.clip(2e9 * (level + 0.1 * white), 0, None).astype("u8")
    yield "bytes a second, correlated noise", np.clip(2e9 * (level + 0.1 * smooth), 0, None).astype("u8")
    yield "bytes a second, phases", np.clip(phases * 2e9 * (level + 0.1 * white), 0, None).astype("u8")
    yield "bytes a second, source in KB", (np.clip(2e6 * (level + 0.1 * white), 0, None).astype("u8") * 1024)
    yield "mW, white noise", ((500 + 250 * level + 20 * white) * 1000).astype("u4")
    yield "mW, correlated noise", ((500 + 250 * level + 20 * smooth) * 1000).astype("u4")
    yield "mW, source in 100 mW", (np.round((500 + 250 * level + 20 * smooth) * 10) * 100).astype("u4")


def _counters(rng: np.random.Generator, level: Any, smooth: Any, phases: Any) -> Iterator[Shape]:
    power = 1000 * (500 + 250 * level + 20 * smooth)
    yield "energy mJ", (np.cumsum(power, axis=1) + 1e12).astype("u8")
    yield "bytes total", (np.cumsum(np.clip(2e9 * (level + 0.1 * smooth), 0, None), axis=1) + 1e13).astype("u8")
    yield "rare errors total", (np.cumsum(rng.random((GPUS, SECONDS)) < 0.001, axis=1) + 10).astype("u8")
    yield "throttled ms total", np.cumsum(phases * 1000, axis=1).astype("u8")
    yield "uptime s", (np.arange(SECONDS)[None] + np.full((GPUS, 1), 1_000_000)).astype("u8")


def _steps(rng: np.random.Generator, level: Any, smooth: Any, phases: Any) -> Iterator[Shape]:
    moved = np.cumsum(rng.integers(-40, 41, (GPUS, SECONDS)) * (rng.random((GPUS, SECONDS)) < 0.05), axis=1)
    yield "temperature", np.round(60 + 3 * smooth + 10 * level).astype("i2")
    yield "memory bytes in MiB", ((np.floor(6e10 * level / 2**20) + moved) * 2**20).astype("u8")
    yield "clock MHz", (1980 - 15 * rng.integers(0, 4, (GPUS, SECONDS)) * phases).astype("u2")
    yield "constant u64", np.full((GPUS, SECONDS), 85_899_345_920, "u8")
    yield "constant u16", np.full((GPUS, SECONDS), 1980, "u2")
    yield "state u8", (phases * 3).astype("u1")
    yield "bitmask u64", (phases * 4 + 1).astype("u8")


def _autoregressive(white: NDArray[Any]) -> NDArray[Any]:
    """Return noise of variance 1 whose neighbours in time correlate by 0.9."""
    smooth = np.zeros_like(white)
    for second in range(1, white.shape[1]):
        smooth[:, second] = 0.9 * smooth[:, second - 1] + np.sqrt(0.19) * white[:, second]
    return smooth


def bytes_per_value(store: ChdbStore, values: NDArray[Any], codec: str) -> float:
    """Write one column and return its compressed bytes per value."""
    flat = np.ascontiguousarray(values.reshape(-1))
    store.query("DROP TABLE IF EXISTS shape SYNC")
    store.query(
        f"CREATE TABLE shape (i UInt32, v {TYPES[flat.dtype.str[1:]]} CODEC({codec})) ENGINE = MergeTree ORDER BY i "
        "SETTINGS min_bytes_for_wide_part = 0"
    )
    store.insert("shape", pa.table({"i": np.arange(len(flat), dtype=np.uint32), "v": flat}))
    answer = store.query(
        "SELECT sum(column_data_compressed_bytes) / sum(rows) AS v FROM system.parts_columns "
        "WHERE table = 'shape' AND active AND column = 'v'"
    )
    return float(answer["v"][0].as_py())


def main() -> None:
    """Print one line per shape."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="codecs-"))
    store = ChdbStore(folder)
    for name, values in shapes():
        sizes = {codec: bytes_per_value(store, values, codec) for codec in CODECS}
        least = min(sizes.values())
        cells = (f"{codec} {size:.3f}{'*' if size == least else ''}" for codec, size in sizes.items())
        print(f"{name:34s} {'  '.join(cells)}", flush=True)
    store.close()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
