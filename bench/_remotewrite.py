"""Turn the fleet's data set into remote-write 1.0 bodies: snappy over protobuf, as Prometheus and vmagent send them.

A body holds all series of one host over some seconds, each series once with all its samples: one sample each where it
holds one second, as Prometheus and vmagent send a scrape. Names are those of the catalogue, values are physical, as
short in decimals as their resolution allows: nothing makes them harder to compress than what an exporter prints.
"""

from collections.abc import Iterator
from math import log10

import cramjam
import numpy as np
from numpy.typing import NDArray

import _fleet
from secondsight.catalog.load import Catalog
from secondsight.wire.content import Content

_SAMPLE = np.dtype([("head", "V2"), ("value_tag", "u1"), ("value", "<f8"), ("time_tag", "u1"), ("time", "u1", (6,))])
_TIME_BYTES = 6


def bodies(fleet: _fleet.Fleet, catalog: Catalog, host: int, begin_ms: int, seconds_each: int) -> Iterator[bytes]:
    """Give the bodies of one host in their order, each of so many seconds; the first tick is at `begin_ms`."""
    contents = [content for of_batch in fleet.templates[host % _fleet.TEMPLATES].contents for content in of_batch]
    names = [column.metric for column in contents[0].schema.columns]
    series = [
        _labels(host, gpu, name)
        for name in names
        for gpu in range(_fleet.GPUS)  # as the matrix of a frame lies: metric by metric
    ]
    batches = max(1, seconds_each // _fleet.TICKS)
    for first in range(0, len(contents) - batches + 1, batches):
        values = np.concatenate([_physical(one, catalog) for one in contents[first : first + batches]], axis=1)
        times = begin_ms + 1000 * (first * _fleet.TICKS + np.arange(values.shape[1], dtype=np.int64))
        for start in range(0, len(times), seconds_each):
            yield _body(series, values[:, start : start + seconds_each], times[start : start + seconds_each])


def _physical(content: Content, catalog: Catalog) -> NDArray[np.float64]:
    """Return values of shape (series, ticks)."""
    if content.scalars is None:
        raise ValueError("a content without scalars")
    found = []
    for group in content.scalars.groups:
        for number, row in enumerate(group.values):
            metric = catalog.get(content.schema.columns[group.first_column + number].metric)
            decimals = max(0, round(-log10(metric.resolution)))
            found.append(np.round(row.astype(np.float64) * metric.resolution, decimals).reshape(_fleet.TICKS, -1).T)
    return np.concatenate(found)


def _body(series: list[bytes], values: NDArray[np.float64], times: NDArray[np.int64]) -> bytes:
    samples = np.zeros(values.shape, _SAMPLE)
    samples["head"] = np.void(b"\x12\x10")
    samples["value_tag"], samples["value"] = 0x09, values
    samples["time_tag"], samples["time"] = 0x10, _varints(times)
    packed = [row.tobytes() for row in samples]
    made = b"".join(
        b"\x0a" + _varint(len(labels) + len(row)) + labels + row for labels, row in zip(series, packed, strict=True)
    )
    return bytes(cramjam.snappy.compress_raw(made))


def _labels(host: int, gpu: int, name: str) -> bytes:
    labels = {
        "Hostname": _fleet.host_name(host),
        "UUID": _fleet.gpu_id(host, gpu),
        "__name__": name,
        "device": f"nvidia{gpu}",
        "gpu": str(gpu),
        "instance": f"{_fleet.host_name(host)}:9400",
        "job": "dcgm-exporter",
        "modelName": "NVIDIA H100 80GB HBM3",
    }
    return b"".join(_field(1, _field(1, key.encode()) + _field(2, text.encode())) for key, text in labels.items())


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _varints(times: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return epoch milliseconds, which take six bytes each until the year 2109, of shape (times, 6)."""
    shifts = 7 * np.arange(_TIME_BYTES)
    found = (times[:, None] >> shifts & 0x7F).astype(np.uint8)
    found[:, :-1] |= 0x80
    return found
