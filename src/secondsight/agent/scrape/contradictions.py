"""Find readings that other readings of the same GPU deny, and withdraw them.

- Profiling that says 0 while the GPU is busy all the time is no idle GPU: the profiling module has lost its counters.
- An energy counter that hardly moves while power is drawn has stopped.

The withdrawn readings become absent, and the health of the GPU says which source is not to be trusted.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from secondsight.catalog.index import Catalog
from secondsight.catalog.scale import to_physical
from secondsight.mapping.cells import Cell
from secondsight.model import Quality

logger = logging.getLogger(__name__)

ENTITIES_MAXIMUM = 1024
BUSY_RATIO, BUSY_MS = 0.5, 300_000
VERY_BUSY_RATIO, VERY_BUSY_MS = 0.9, 30_000
"""Profiling of 0 is denied by a utilisation above this for this long."""

ENERGY_MS = 600_000
ENERGY_SHARE = 0.5
LEAST_WATTS = 10.0
"""Energy is denied if it differs by more than this share, over this time, from the power drawn, if any is."""

GAP_MS = 120_000
"""A GPU that was not read for so long is judged anew."""

WARNING, FINE = 1, 0
PROFILING, POWER = "subsystem=PROFILING", "subsystem=POWER"

_UTILIZATION, _ENGINE = "gpu_utilization_ratio", "gpu_graphics_engine_active_ratio"
_POWER_NAMES, _ENERGY = ("gpu_power_watts", "gpu_power_instant_watts"), "gpu_energy_joules_total"
_PROFILED = frozenset(
    {
        _ENGINE,
        "gpu_sm_active_ratio",
        "gpu_sm_occupancy_ratio",
        "gpu_tensor_active_ratio",
        "gpu_fp64_active_ratio",
        "gpu_fp32_active_ratio",
        "gpu_fp16_active_ratio",
        "gpu_dram_active_ratio",
    }
)


@dataclass(slots=True)
class _Gpu:
    """What is remembered of one GPU; times are those of ticks, None where a state does not hold."""

    seen_ms: int
    busy_ms: int | None = None
    very_busy_ms: int | None = None
    window_ms: int | None = None
    window_joules: float = 0.0
    drawn_joules: float = 0.0
    watts: float | None = None
    profiling_denied: bool = False
    energy_denied: bool = False


class Contradictions:
    """Judges the cells of one source, tick by tick; not shared between threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._health = catalog.get("gpu_health")
        self._gpus: dict[str, _Gpu] = {}

    def judge(self, cells: list[Cell], tick_ms: int) -> tuple[list[Cell], int]:
        """Return the cells with denied ones withdrawn and told of, and how many were withdrawn."""
        readings = _readings(cells)
        states: list[Cell] = []
        for entity, named in readings.items():
            gpu = self._gpu(entity, tick_ms)
            if _ENGINE in named and _UTILIZATION in named:
                states += self._judge_profiling(entity, gpu, named, tick_ms)
            if _ENERGY in named:
                states += self._judge_energy(entity, gpu, named, tick_ms)
            gpu.seen_ms = tick_ms
        if not states and not any(gpu.profiling_denied or gpu.energy_denied for gpu in self._gpus.values()):
            return cells, 0
        judged = [self._judged(cell) for cell in cells]
        withdrawn = sum(new is not old for new, old in zip(judged, cells, strict=True))
        told = {(cell.entity, cell.part) for cell in judged if cell.metric is self._health}
        return judged + [state for state in states if (state.entity, state.part) not in told], withdrawn

    def _gpu(self, entity: str, tick_ms: int) -> _Gpu:
        gpu = self._gpus.get(entity)
        if gpu is None or not 0 <= tick_ms - gpu.seen_ms <= GAP_MS:
            if len(self._gpus) >= ENTITIES_MAXIMUM:
                self._gpus.clear()
            gpu = self._gpus[entity] = _Gpu(tick_ms)
        return gpu

    def _judge_profiling(self, entity: str, gpu: _Gpu, named: dict[str, float], tick_ms: int) -> Iterable[Cell]:
        idle = named[_ENGINE] == 0
        gpu.busy_ms = _since(gpu.busy_ms, idle and named[_UTILIZATION] > BUSY_RATIO, tick_ms)
        gpu.very_busy_ms = _since(gpu.very_busy_ms, idle and named[_UTILIZATION] >= VERY_BUSY_RATIO, tick_ms)
        denied = _lasts(gpu.busy_ms, BUSY_MS, tick_ms) or _lasts(gpu.very_busy_ms, VERY_BUSY_MS, tick_ms)
        before, gpu.profiling_denied = gpu.profiling_denied, denied
        if denied and not before:
            words = "%s: profiling reads 0 while the GPU is busy; it is left out until it reads again (restart DCGM)"
            logger.warning(words, entity)
        return self._states(entity, PROFILING, before, denied)

    def _judge_energy(self, entity: str, gpu: _Gpu, named: dict[str, float], tick_ms: int) -> Iterable[Cell]:
        joules = named[_ENERGY]
        watts = next((named[name] for name in _POWER_NAMES if name in named), None)
        if gpu.window_ms is None or watts is None or gpu.watts is None or joules < gpu.window_joules:
            gpu.window_ms, gpu.window_joules, gpu.drawn_joules, gpu.watts = tick_ms, joules, 0.0, watts
            return ()
        gpu.drawn_joules += gpu.watts * (tick_ms - gpu.seen_ms) / 1000
        gpu.watts = watts
        lasted_ms = tick_ms - gpu.window_ms
        if lasted_ms < ENERGY_MS:
            return self._states(entity, POWER, gpu.energy_denied, gpu.energy_denied)
        moved, drawn = joules - gpu.window_joules, gpu.drawn_joules
        enough = drawn > LEAST_WATTS * lasted_ms / 1000
        denied = enough and abs(moved - drawn) > ENERGY_SHARE * max(moved, drawn)
        before, gpu.energy_denied = gpu.energy_denied, denied
        gpu.window_ms, gpu.window_joules, gpu.drawn_joules = tick_ms, joules, 0.0
        if denied and not before:
            words = "%s: energy moved by %.0f J while %.0f J were drawn; the counter is left out until they agree"
            logger.warning(words, entity, moved, drawn)
        return self._states(entity, POWER, before, denied)

    def _states(self, entity: str, part: str, before: bool, denied: bool) -> Iterable[Cell]:
        """Give the state while a reading is denied, and once when it is believed again."""
        return [Cell(self._health, entity, part, WARNING if denied else FINE, Quality.OK)] if before or denied else []

    def _judged(self, cell: Cell) -> Cell:
        gpu = self._gpus.get(cell.entity)
        if gpu is None or cell.value is None:
            return cell
        denied = (gpu.profiling_denied and cell.metric.name in _PROFILED and cell.value == 0) or (
            gpu.energy_denied and cell.metric.name == _ENERGY
        )
        return cell._replace(value=None, quality=Quality.ABSENT_SOURCE_BLANK) if denied else cell


def _readings(cells: Iterable[Cell]) -> dict[str, dict[str, float]]:
    """Return GPU -> metric -> value of the readings that judge or are judged; parts are no GPUs."""
    wanted = {_UTILIZATION, _ENGINE, _ENERGY, *_POWER_NAMES}
    found: dict[str, dict[str, float]] = {}
    for metric, entity, part, value, _ in cells:
        if metric.name in wanted and value is not None and not part:
            found.setdefault(entity, {})[metric.name] = to_physical(metric, value)
    return found


def _since(before_ms: int | None, holds: bool, tick_ms: int) -> int | None:
    return (tick_ms if before_ms is None else before_ms) if holds else None


def _lasts(since_ms: int | None, wanted_ms: int, tick_ms: int) -> bool:
    return since_ms is not None and tick_ms - since_ms >= wanted_ms
