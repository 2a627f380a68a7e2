"""Send foreign requests to a real gateway, and see what is then in its log."""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from foreign_index import snappy
from gateway_fixture import Reply, Running, read_definitions, serving
from secondsight.catalog.load import load_catalog
from secondsight.catalog.scale import to_physical
from secondsight.clock import ManualClock
from secondsight.model import Quality
from secondsight.wire.content import Frame
from secondsight.wire.envelope import RecordType
from secondsight.wire.frame import decode
from secondsight.wire.schema import Definitions

CASES = Path(__file__).parent / "cases" / "foreign"
CATALOGUE = CASES / "platform.toml"
CASE_MS = 1_717_236_000_000
"""When the samples of the handed requests are of."""
FIRST = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
SECOND = FIRST | {"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A gateway with a token that may write of any host."""

    run: Running
    token: str

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        return self.run.call("POST", path, body, {"Authorization": f"Bearer {self.token}", **headers})

    def write(self, request: bytes, headers: Mapping[str, str] = FIRST) -> Reply:
        """Send a request of remote write, which is not compressed yet."""
        return self.post("/api/v1/write", snappy(request), headers)

    def metrics(self, request: Any) -> Reply:
        """Send a request of OTLP as JSON."""
        return self.post("/v1/metrics", orjson.dumps(request), JSON)

    def frames(self) -> list[Frame]:
        known = Definitions()
        for blob in read_definitions(self.run.config.data):
            known.add(blob)
        return [decode(one.body, known) for one in self.run.records() if one.type is RecordType.FRAME]

    def refused(self) -> list[dict[str, Any]]:
        return [orjson.loads(one.body) for one in self.run.records() if one.type is RecordType.REFUSED]

    def cells(self) -> dict[str, float | str]:
        """Return `metric entity part @ms` -> physical value, or the name of the quality; the greater value counts."""
        catalog = load_catalog(self.run.config.catalogue)
        found: dict[str, float | str] = {}
        for frame in self.frames():
            block, content = frame.content.scalars, frame.content
            if block is None:
                continue
            for group in block.groups:
                present = np.ones(group.values.shape, np.bool_) if group.present is None else group.present
                for column, row in np.argwhere(present).tolist():
                    metric = catalog.get(content.schema.columns[group.first_column + column].metric)
                    value, name = to_physical(metric, group.values[column, row].item()), _name(frame, metric.name, row)
                    before = found.get(name)
                    found[name] = value if not isinstance(before, float | int) else max(before, value)
            listed = zip(block.quality_row.tolist(), block.quality_column.tolist(), block.quality.tolist(), strict=True)
            for row, column, quality in listed:
                if not Quality(quality).has_value:
                    found[_name(frame, content.schema.columns[column].metric, row)] = Quality(quality).name
        return found

    def histograms(self) -> list[tuple[str, str, int, tuple[float, ...], list[int], float, int]]:
        """Return (metric, entity, ms, bounds, buckets, sum, start) of every reading."""
        found = []
        for frame in self.frames():
            for rows in frame.content.histograms:
                column = frame.content.schema.histograms[rows.column]
                for number, entity in enumerate(rows.entity_index.tolist()):
                    found.append(
                        (
                            column.metric,
                            frame.content.entities.entities[entity].entity,
                            int(frame.header.tick_times_ms[rows.tick_index[number]]),
                            column.bounds,
                            rows.buckets[number].tolist(),
                            float(rows.sums[number]),
                            int(rows.start_times_ms[number]),
                        )
                    )
        return found


@contextlib.contextmanager
def foreign(data: Path, now_ms: int = CASE_MS, **settings: Any) -> Iterator[Foreign]:
    """Serve a gateway whose catalogue has the metrics of the cases."""
    settings = {"catalogue": (CATALOGUE,)} | settings
    with serving(data, ManualClock(now_ms), **settings) as run:
        yield Foreign(run, run.token(name="prom"))


def case(name: str) -> dict[str, Any]:
    """Return a handed request; its body as bytes."""
    told: dict[str, Any] = json.loads((CASES / name).read_text())
    return told | {"body": base64.b64decode(told["body_b64"])}


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / name).read_text().splitlines()]


def _name(frame: Frame, metric: str, row: int) -> str:
    block, entities = frame.content.scalars, frame.content.entities.entities
    assert block is not None
    one = entities[int(block.entity_index[row])]
    time_ms = int(frame.header.tick_times_ms[block.tick_index[row]])
    return " ".join(filter(None, (metric, one.entity, one.part, f"@{time_ms}")))
