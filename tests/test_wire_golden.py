"""Frames written by earlier builds are read for ever: tests/cases/wire holds one of each version.

--rewrite writes the file of a new version; a file that is there is never rewritten.
"""

from pathlib import Path

import numpy as np
import pytest
import zstandard

from secondsight.model import EntityKind, Quality
from secondsight.wire.content import (
    Column,
    Content,
    Entity,
    EntityTable,
    Event,
    Group,
    HistogramColumn,
    HistogramRows,
    Info,
    ScalarBlock,
)
from secondsight.wire.frame import SUPPORTED_VERSIONS, Stamp, decode, encode, read_header, stamp_of
from secondsight.wire.schema import Definitions, make_schema
from wire_strategies import same

CASES = Path(__file__).parent / "cases" / "wire"

STAMP = Stamp(
    collector_id="host-1/nvml",
    host_id="host-1",
    source="nvml",
    spool_id=0x0123_4567_89AB_CDEF,
    first_sequence=41,
    last_sequence=42,
    tick_times_ms=np.array([1_790_000_000_000, 1_790_000_001_000]),
    interval_ms=1000,
    boot_id="0d9e1a52-6f5a-4f5e-9c1b-2f6f3c1d7a10",
    clock_offset_ms=-1500,
    clock_uncertainty_ms=12,
    live=True,
)


def content() -> Content:
    schema = make_schema(
        EntityKind.GPU,
        [
            Column("gpu_energy_joules_total", "J", "u64", 0.001),
            Column("gpu_power_watts", "W", "u32", 0.001),
            Column("gpu_temperature_celsius", "Cel", "i16", 1.0),
            Column("gpu_utilization_ratio", "1", "u8", 0.01),
            Column("gpu_ecc_mode_enabled", "1", "u8", 1.0),
            Column("gpu_skew_seconds", "s", "f64", 0.0),
        ],
        [HistogramColumn("gpu_copy_seconds", "s", (0.001, 0.01, 0.1))],
    )
    entities = (Entity("GPU-1", "", (("gpu_model", "H100"), ("index", "0"))), Entity("GPU-2", "", (("index", "1"),)))
    present = np.array([[False] * 4, [True, True, False, True]])
    return Content(
        schema=schema,
        entities=EntityTable(EntityKind.GPU, "host-1", "rack-7", entities),
        scalars=ScalarBlock(
            entity_index=np.array([0, 1, 0, 1], np.uint32),
            tick_index=np.array([0, 0, 1, 1], np.uint16),
            observed_delta_ms=np.array([3, 3, 4, -1], np.int32),
            groups=(
                Group(0, np.array([[2**63, 5, 2**63 + 700_000, 7]], np.uint64), None),
                Group(1, np.array([[0.5, -1e300, 1e-300, 0.0]]), None),
                Group(2, np.array([[400_000, 401_000, 402_000, 403_000]], np.uint32), None),
                Group(3, np.array([[-5, 60, 61, 62]], np.int16), None),
                Group(4, np.array([[0, 0, 0, 0], [99, 100, 0, 98]], np.uint8), present),
            ),
            quality_row=np.array([1, 0, 1, 2, 3, 2], np.uint32),
            quality_column=np.array([2, 4, 4, 4, 4, 5], np.uint16),
            quality=np.array([Quality.ESTIMATE, 3, 3, 3, 3, Quality.BAD_RANGE], np.uint8),
        ),
        histograms=(
            HistogramRows(
                column=0,
                entity_index=np.array([1], np.uint32),
                tick_index=np.array([1], np.uint16),
                buckets=np.array([[1, 2, 3, 2**64 - 1]], np.uint64),
                sums=np.array([12.5]),
                start_times_ms=np.array([1_789_999_000_000]),
            ),
        ),
        events=(Event("gpu_xid", "GPU-1", "", 1_790_000_000_250, 79, None, 2, {"text": "fallen off the bus"}),),
        infos=(Info("gpu_driver", "GPU-1", "", 1_790_000_000_000, {"version": "580.1"}),),
    )


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_frames_of_earlier_builds_are_read(request, version):
    path = CASES / f"v{version}.frame"
    if request.config.getoption("--rewrite") and not path.exists():
        path.write_bytes(encode(STAMP, content(), inline=True, version=version))
    frame = decode(path.read_bytes(), Definitions())
    assert same(frame.content, content())
    assert same(stamp_of(frame.header), STAMP)


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_what_is_written_did_not_change(version):
    then = (CASES / f"v{version}.frame").read_bytes()
    now = encode(STAMP, content(), inline=True, version=version)
    assert unpacked(now) == unpacked(then)


def unpacked(frame: bytes) -> tuple[object, ...]:
    head = read_header(frame)
    return str(head.header), head.inline, head.version, zstandard.decompress(frame[head.body_start :])
