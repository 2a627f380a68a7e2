"""Turn figures of inference engines that stand for nothing alone into figures of the catalogue.

Triton counts requests and the microseconds that they took: a histogram of one bucket, of which only the mean can be
told. A ratio of two counters is of what they grew by since the last scrape, and absent where nothing grew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from secondsight.agent.scrape.exposition import Sample
from secondsight.catalog.load import Catalog
from secondsight.catalog.metric import Source
from secondsight.catalog.scale import conversion
from secondsight.mapping import identity
from secondsight.mapping.cells import Cell, Gathered, HistogramPoint
from secondsight.mapping.identity import Origin
from secondsight.model import EntityKind, Quality

MEANS = {
    "nv_inference_queue_duration_us": "inference_queue_duration_seconds",
    "nv_inference_request_duration_us": "inference_request_duration_seconds",
}
"""Sums of microseconds over the requests that `REQUESTS` counts."""
REQUESTS = "nv_inference_request_success"
BATCHED, BATCHES = "nv_inference_count", "nv_inference_exec_count"
TENSORRT_REQUESTS = "nv_trt_llm_request_metrics"
NAMES = frozenset({*MEANS, BATCHED, BATCHES})
"""Samples that are read here alone."""
ENGINES_MAXIMUM = 1_000
_READ = NAMES | {REQUESTS, TENSORRT_REQUESTS}
_HIT, _ASKED = "inference_kv_cache_hit_tokens_total", "inference_kv_cache_query_tokens_total"


@dataclass(slots=True)
class _Engine:
    """What one engine said this time, by name; `nv_trt_llm_request_metrics` by its type of requests."""

    host: str
    said: dict[str, float] = field(default_factory=dict)


class Derived:
    """Derives for one target, remembering what counters were. Not thread-safe."""

    def __init__(self, catalog: Catalog, origin: Origin) -> None:
        self._catalog = catalog
        self._origin = origin
        self._before: dict[tuple[str, str], float] = {}

    def add(self, samples: Iterable[Sample], hosts: Mapping[str, Gathered]) -> None:
        """Add what follows from the samples of one scrape, and from the cells that were made of them."""
        for entity, engine in self._engines(samples).items():
            gathered = hosts.get(engine.host)
            if gathered is not None:
                self._means(entity, engine.said, gathered)
                batches = self._ratio(entity, engine.said, BATCHED, BATCHES)
                self._put("inference_batch_size", entity, batches, gathered)
                self._put("inference_batch_efficiency_ratio", entity, _share_of_batch(engine.said), gathered)
        for gathered in hosts.values():
            self._hit_ratios(gathered)
        if len(self._before) > 4 * ENGINES_MAXIMUM:
            self._before.clear()

    def _engines(self, samples: Iterable[Sample]) -> dict[str, _Engine]:
        engines: dict[str, _Engine] = {}
        for sample in samples:
            if sample.name not in _READ or not 0 <= sample.value < 2**63:
                continue
            labels = identity.lowered(sample.labels)
            host = identity.host_of(labels, self._origin)
            entity = identity.entity_of(EntityKind.INFERENCE, labels, self._origin, host)
            if identity.is_usable(entity) and (entity in engines or len(engines) < ENGINES_MAXIMUM):
                key = sample.name if sample.name != TENSORRT_REQUESTS else labels.get("request_type", "")
                engines.setdefault(entity, _Engine(host)).said.setdefault(key, sample.value)
        return engines

    def _means(self, entity: str, said: Mapping[str, float], gathered: Gathered) -> None:
        requests = said.get(REQUESTS)
        taken = {(point.metric.name, point.entity) for point in gathered.histograms}
        for name, metric in MEANS.items():
            if name in said and requests is not None and (metric, entity) not in taken:
                point = HistogramPoint(
                    self._catalog.get(metric), entity, "", (), (int(requests),), said[name] * 1e-6, 0
                )
                gathered.histograms.append(point)

    def _ratio(self, entity: str, said: Mapping[str, float], above: str, below: str) -> float | None:
        """Return what one counter grew by over what another did, None where the other did not grow."""
        grew = [self._growth(entity, name, said.get(name)) for name in (above, below)]
        return None if grew[0] is None or not grew[1] else grew[0] / grew[1]

    def _growth(self, entity: str, name: str, value: float | None) -> float | None:
        if value is None:
            return None
        before = self._before.get((entity, name))
        self._before[entity, name] = value
        return None if before is None or value < before else value - before

    def _hit_ratios(self, gathered: Gathered) -> None:
        counted: dict[str, dict[str, float]] = {}
        has_ratio: set[str] = set()
        for cell in gathered.cells:
            if cell.metric.name in (_HIT, _ASKED) and cell.value is not None:
                counted.setdefault(cell.entity, {})[cell.metric.name] = cell.value
            elif cell.metric.name == "inference_kv_cache_hit_ratio" and cell.value is not None:
                has_ratio.add(cell.entity)
        for entity, said in counted.items():
            ratio = self._ratio(entity, said, _HIT, _ASKED)
            if entity not in has_ratio:
                self._put("inference_kv_cache_hit_ratio", entity, ratio, gathered)

    def _put(self, name: str, entity: str, value: float | None, gathered: Gathered) -> None:
        """Add a cell, in place of one that says that the source had none."""
        if value is None:
            return
        metric = self._catalog.get(name)
        stored, quality = conversion(metric, Source("derived", name)).one(value)
        gathered.cells[:] = [
            cell for cell in gathered.cells if (cell.metric.name, cell.entity, cell.part) != (name, entity, "")
        ]
        gathered.cells.append(Cell(metric, entity, "", stored, quality if quality is not Quality.NONE else Quality.OK))


def _share_of_batch(said: Mapping[str, float]) -> float | None:
    """Return how full TensorRT-LLM's batch is: requests that are active over those that may be."""
    active, most = said.get("active"), said.get("max")
    return active / most if active is not None and most else None
