"""Compare ways to write the matrices of a frame: bytes and microseconds for 8 GPUs x 5 ticks x 100 metrics.

A third of the metrics is noisy: correlated noise at the source's resolution, so the data cannot be small. Another third
moves in steps or rises steadily, the rest stands still; six metrics are not supported at all. Every way is checked to
give the same values back. `plain` and `shuffle` are also measured as whole frames, which are versions 1 and 2.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import zstandard

from secondsight.model import EntityKind, Quality
from secondsight.wire.content import Column, Content, Entity, EntityTable, Group, ScalarBlock
from secondsight.wire.frame import Stamp, decode, encode, read_header, restamp
from secondsight.wire.schema import Definitions, GroupLayout, group_layouts, make_schema

SEED = 20_261_129
GPUS = 8
TICKS = 5
METRICS = 100
FRAMES = 40
REPEATS = 25
VALUES = GPUS * TICKS * METRICS
UNSUPPORTED = 6

Matrix = np.ndarray
COMPRESSOR = zstandard.ZstdCompressor(level=1)
DECOMPRESSOR = zstandard.ZstdDecompressor()


@dataclass(frozen=True)
class Way:
    """One way to write the matrices of a frame."""

    name: str
    encode: Callable[[Sequence[Matrix]], bytes]
    decode: Callable[[bytes], Sequence[Matrix]]


# name, dtype, number of metrics, start, step of correlated noise, chance of a jump, steady rise a tick
SHAPES = [
    ("power_mw", "u32", 6, 450_000, 9_000, 0.0, 0),
    ("ratio_ppm", "u32", 12, 600_000, 30_000, 0.0, 0),
    ("bytes_per_second", "i64", 8, 90_000_000_000, 2_000_000_000, 0.0, 0),
    ("energy_mj", "u64", 4, 8_000_000_000_000, 9_000, 0.0, 450_000),
    ("temperature", "i16", 4, 62, 1, 0.0, 0),
    ("memory_bytes", "u64", 6, 60_000_000_000, 0, 0.02, 0),
    ("clock_mhz", "u16", 8, 1_980, 0, 0.05, 0),
    ("milliseconds_total", "u64", 6, 900_000, 0, 0.0, 1_000),
    ("errors_total", "u32", 14, 3, 0, 0.002, 0),
    ("state", "u8", 20, 1, 0, 0.002, 0),
    ("constant", "u64", 12, 85_899_345_920, 0, 0.0, 0),
]


def make_columns() -> tuple[list[Column], dict[str, Matrix]]:
    """Return the columns and their values over all ticks, shape (ticks, GPUs) each."""
    random = np.random.default_rng(SEED)
    columns, values = [], {}
    for name, dtype, count, start, noise, jump, rise in SHAPES:
        for number in range(count):
            columns.append(Column(f"{name}_{number:02}", "", dtype, 1.0))
            values[columns[-1].metric] = _series(random, start, noise, jump, rise)
    return columns, values


def _series(random: np.random.Generator, start: int, noise: int, jump: float, rise: int) -> Matrix:
    size = (TICKS * FRAMES, GPUS)
    level = start * random.uniform(0.7, 1.3, GPUS)
    wave = np.zeros(size)
    for tick in range(1, size[0]):
        wave[tick] = 0.8 * wave[tick - 1] + random.normal(0, noise, GPUS)
    jumps = np.cumsum((random.random(size) < jump) * random.integers(1, 5, size), axis=0)
    return np.maximum(0, level + wave + jumps + rise * np.arange(size[0])[:, None]).astype(np.int64)


def make_contents() -> list[Content]:
    """Return what each frame carries."""
    columns, values = make_columns()
    schema = make_schema(EntityKind.GPU, columns)
    table = EntityTable(EntityKind.GPU, "host-1", "rack-1", tuple(Entity(f"GPU-{number}") for number in range(GPUS)))
    return [
        Content(schema, table, _block(schema.columns, group_layouts(schema), values, frame)) for frame in range(FRAMES)
    ]


def _block(
    columns: Sequence[Column], layouts: Sequence[GroupLayout], values: dict[str, Matrix], frame: int
) -> ScalarBlock:
    ticks = slice(frame * TICKS, (frame + 1) * TICKS)
    rows = np.arange(TICKS * GPUS)
    absent = range(METRICS - UNSUPPORTED, METRICS)
    groups = []
    for layout in layouts:
        names = [column.metric for column in columns[layout.first_column : layout.first_column + layout.columns]]
        matrix = np.stack([values[name][ticks].reshape(-1) for name in names]).astype(layout.dtype)
        present = np.ones(matrix.shape, np.bool_)
        present[[number - layout.first_column for number in absent if number in _columns(layout)]] = False
        groups.append(Group(layout.first_column, np.where(present, matrix, 0).astype(layout.dtype), _or_none(present)))
    return ScalarBlock(
        (rows % GPUS).astype(np.uint32),
        (rows // GPUS).astype(np.uint16),
        np.full(len(rows), 3, np.int32),
        tuple(groups),
        np.tile(rows, UNSUPPORTED).astype(np.uint32),
        np.repeat(list(absent), len(rows)).astype(np.uint16),
        np.full(len(rows) * UNSUPPORTED, int(Quality.ABSENT_NOT_SUPPORTED), np.uint8),
    )


def _columns(layout: GroupLayout) -> range:
    return range(layout.first_column, layout.first_column + layout.columns)


def _or_none(present: Matrix) -> Matrix | None:
    return None if present.all() else present


def entropy_bits(contents: Sequence[Content]) -> float:
    """Return the mean over columns of the empirical entropy of steps from tick to tick, in bits a value."""
    found = []
    for position in range(len(contents[0].scalars.groups)):
        matrix = np.concatenate([content.scalars.groups[position].values for content in contents], axis=1)
        steps = np.diff(matrix.reshape(len(matrix), -1, GPUS).astype(np.int64), axis=1).reshape(len(matrix), -1)
        found += [_entropy(column) for column in steps]
    return float(np.mean(found))


def _entropy(values: Matrix) -> float:
    _, counts = np.unique(values, return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum())


def make_ways(matrices: Sequence[Matrix]) -> list[Way]:
    """Return the ways to write matrices of these types and shapes."""
    kinds = [(matrix.dtype, matrix.shape) for matrix in matrices]

    def matrix_way(name: str, forward: Callable, backward: Callable) -> Way:
        def write(found: Sequence[Matrix]) -> bytes:
            return COMPRESSOR.compress(b"".join(forward(matrix) for matrix in found))

        def read(body: bytes) -> list[Matrix]:
            raw, position, result = DECOMPRESSOR.decompress(body), 0, []
            for dtype, shape in kinds:
                size = shape[0] * shape[1] * dtype.itemsize
                result.append(backward(raw[position : position + size], dtype, shape))
                position += size
            return result

        return Way(name, write, read)

    return [
        matrix_way("plain", lambda m: m.tobytes(), lambda b, d, s: np.frombuffer(b, d).reshape(s)),
        matrix_way("shuffle", _shuffle, _unshuffle),
        matrix_way(
            "delta zigzag", lambda m: _delta(m).tobytes(), lambda b, d, s: _undelta(np.frombuffer(b, d).reshape(s))
        ),
        matrix_way(
            "delta zigzag shuffle", lambda m: _shuffle(_delta(m)), lambda b, d, s: _undelta(_unshuffle(b, d, s))
        ),
        _arrow_way(kinds),
    ]


def _shuffle(matrix: Matrix) -> bytes:
    return matrix.view(np.uint8).reshape(matrix.size, matrix.dtype.itemsize).T.tobytes()


def _unshuffle(data: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> Matrix:
    planes = np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1)
    cells = np.empty(planes.shape[::-1], np.uint8)
    for place in range(dtype.itemsize):
        cells[:, place] = planes[place]
    return cells.view(dtype).reshape(shape)


def _delta(matrix: Matrix) -> Matrix:
    """Return differences from tick to tick, folded so that small ones of either sign are small."""
    signed = matrix.view(np.dtype(f"i{matrix.dtype.itemsize}"))
    steps = signed.copy()
    steps[:, GPUS:] -= signed[:, :-GPUS]
    return ((steps << 1) ^ (steps >> (8 * matrix.dtype.itemsize - 1))).view(matrix.dtype)


def _undelta(folded: Matrix) -> Matrix:
    unsigned = folded.view(np.dtype(f"u{folded.dtype.itemsize}"))
    one = unsigned.dtype.type(1)
    steps = (unsigned >> one) ^ (~(unsigned & one) + one)
    rows = steps.reshape(len(steps), TICKS, GPUS)
    return np.cumsum(rows, axis=1, dtype=unsigned.dtype).reshape(steps.shape).view(folded.dtype)


def _arrow_way(kinds: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> Way:
    names = [f"metric_name_of_usual_length_{number}" for number in range(sum(shape[0] for _, shape in kinds))]

    def write(found: Sequence[Matrix]) -> bytes:
        batch = pa.record_batch([pa.array(row) for matrix in found for row in matrix], names=names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return COMPRESSOR.compress(sink.getvalue())

    def read(body: bytes) -> list[Matrix]:
        batch = pa.ipc.open_stream(DECOMPRESSOR.decompress(body)).read_next_batch()
        rows = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        result, start = [], 0
        for _, shape in kinds:
            result.append(np.stack(rows[start : start + shape[0]]))
            start += shape[0]
        return result

    return Way("Arrow IPC stream", write, read)


def best_us(run: Callable[[], object], count: int) -> float:
    """Return the least CPU microseconds a call takes, over repeats of `count` calls in one `run`."""
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        run()
        times.append((time.thread_time() - start) / count * 1e6)
    return min(times)


def measure(
    name: str, encode_all: Callable[[], list[bytes]], decode_one: Callable[[bytes], object]
) -> dict[str, object]:
    """Measure one way over all frames and print its line."""
    bodies = encode_all()
    result = {
        "way": name,
        "bytes_per_value": round(sum(map(len, bodies)) / len(bodies) / VALUES, 3),
        "encode_us": round(best_us(encode_all, len(bodies)), 1),
        "decode_us": round(best_us(lambda: [decode_one(body) for body in bodies], len(bodies)), 1),
    }
    print(f"{name:24} {result['bytes_per_value']:8.3f} {result['encode_us']:10.1f} {result['decode_us']:10.1f}")
    return result


def main() -> None:
    contents = make_contents()
    all_matrices = [[group.values for group in content.scalars.groups] for content in contents]
    print(f"{FRAMES} frames of {VALUES} cells; steps from tick to tick hold {entropy_bits(contents):.2f} bits a value")
    print(f"{'way':24} {'B/cell':>8} {'encode us':>10} {'decode us':>10}")
    results = []
    for way in make_ways(all_matrices[0]):
        for matrices in all_matrices:
            decoded = way.decode(way.encode(matrices))
            assert all(np.array_equal(left, right) for left, right in zip(decoded, matrices, strict=True)), way.name
        results.append(measure(way.name, lambda way=way: [way.encode(item) for item in all_matrices], way.decode))
    results += [measure_frames(contents, version) for version in (1, 2)]
    stamped = encode(stamp_at(0), contents[0])
    for name, run in (("read_header", lambda: read_header(stamped)), ("restamp", lambda: restamp(stamped, spool_id=1))):
        print(f"{name:24} {'':8} {best_us(lambda run=run: [run() for _ in range(100)], 100):10.1f} us")
    print(json.dumps({"bench": "wire", "entropy_bits": round(entropy_bits(contents), 2), "ways": results}))


def stamp_at(frame: int) -> Stamp:
    times = 1_790_000_000_000 + 1000 * np.arange(frame * TICKS, (frame + 1) * TICKS)
    return Stamp("host-1/nvml", "host-1", "nvml", 7, frame * TICKS, frame * TICKS + TICKS - 1, times, 1000)


def measure_frames(contents: Sequence[Content], version: int) -> dict[str, object]:
    """Measure whole frames: header, checksums, qualities, bounds."""
    definitions = Definitions()
    decode(encode(stamp_at(0), contents[0], inline=True), definitions)
    return measure(
        f"whole frame, version {version}",
        lambda: [encode(stamp_at(number), content, version=version) for number, content in enumerate(contents)],
        lambda body: decode(body, definitions),
    )


if __name__ == "__main__":
    main()
