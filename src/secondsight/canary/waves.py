"""Say what the canary series are: each a closed form of time, from which every figure of every tier follows.

A wave has a sample at each multiple of `STEP_S`, where it has one at all. Times are epoch seconds. Each wave is a host
and a collector of its own, so that what befalls one lane moves no other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

STEP_S = 5
LEVEL, STEPS = "canary_level", "canary_steps_total"
LEVELS = ("avg", "min", "max", "last", "count")
INCREASES = ("increase", "resets", "last")
_STEP_GAIN, _STEPS_LEAST = 3, 2
_RESET_S = 1800
_GAP_PERIOD_S, _GAP_FIRST_S, _GAP_END_S = 1200, 300, 420
_LATE_ONE_IN = 4


def _always(at_s: I64) -> NDArray[np.bool_]:
    return np.ones(at_s.size, np.bool_)


@dataclass(frozen=True, slots=True)
class Wave:
    """One series.

    Attributes:
        metric: Metric of the catalogue that carries it.
        value: Stored values at some instants: physical ones by the metric's resolution, which is `resolution`.
        present: Whether there is a sample at each of them.
        late_s: Every fourth sample is sent so much later than the others; 0 for none.
        ahead_s: How far the clock of its host goes ahead; its frames say so.
    """

    name: str
    metric: str
    value: Callable[[I64], I64]
    resolution: float = 0.001
    present: Callable[[I64], NDArray[np.bool_]] = _always
    late_s: int = 0
    ahead_s: int = 0

    @property
    def host(self) -> str:
        """Return the host, which is the collector and the entity too."""
        return f"canary-{self.name}"

    def samples(self, from_s: int, to_s: int) -> I64:
        """Return the instants in [from, to) at which there is a sample."""
        at_s = np.arange(-(-from_s // STEP_S) * STEP_S, to_s, STEP_S, dtype=np.int64)
        return at_s[self.present(at_s)]

    def is_late(self, at_s: I64) -> NDArray[np.bool_]:
        """Return which samples are sent late."""
        late: NDArray[np.bool_] = at_s // STEP_S % _LATE_ONE_IN == _LATE_ONE_IN - 1
        return late if self.late_s else np.zeros(at_s.size, np.bool_)


WAVES: tuple[Wave, ...] = (
    Wave("constant", LEVEL, lambda at_s: np.full(at_s.size, 1000, np.int64)),
    Wave("ramp", LEVEL, lambda at_s: at_s % 3600),
    Wave("sine", LEVEL, lambda at_s: np.rint(1000 * np.sin(2 * np.pi * (at_s % 600) / 600)).astype(np.int64)),
    Wave("counter", STEPS, lambda at_s: _STEPS_LEAST + _STEP_GAIN * (at_s % _RESET_S // STEP_S), 1.0),
    Wave(
        "gaps",
        LEVEL,
        lambda at_s: 2000 + at_s % _GAP_PERIOD_S,
        present=lambda at_s: (at_s % _GAP_PERIOD_S < _GAP_FIRST_S) | (at_s % _GAP_PERIOD_S >= _GAP_END_S),
    ),
    Wave("late", LEVEL, lambda at_s: 3000 + at_s % 900, late_s=120),
    Wave("skew", LEVEL, lambda at_s: 4000 + at_s % 700, ahead_s=7),
)
LATEST_S = max(wave.late_s for wave in WAVES)
"""How long after its instant the last sample is sent."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Figures of one wave: window starts, and one array of figures for each aggregate, in physical units."""

    starts_s: I64
    figures: dict[str, F64]


def expected(wave: Wave, from_s: int, to_s: int, width_s: int) -> Windows:
    """Return what windows in [from, to) are to show; those without a sample are absent.

    The sample before `from` was sent too: what a counter gained at the first one is known.
    """
    at_s = wave.samples(from_s, to_s)
    values = wave.value(at_s)
    starts_s, firsts = np.unique(at_s // width_s * width_s, return_index=True)
    if not at_s.size:
        return Windows(starts_s, {name: np.zeros(0) for name in aggregates(wave)})
    lasts = np.append(firsts[1:], at_s.size) - 1
    last = values[lasts] * wave.resolution
    if wave.metric == STEPS:
        resets = at_s % _RESET_S == 0
        gained = np.where(resets, values, _STEP_GAIN)
        sums = {"increase": np.add.reduceat(gained, firsts), "resets": np.add.reduceat(resets.astype(np.int64), firsts)}
        return Windows(starts_s, {name: each.astype(np.float64) for name, each in sums.items()} | {"last": last})
    counts = lasts - firsts + 1
    return Windows(
        starts_s,
        {
            "avg": np.add.reduceat(values, firsts) / counts * wave.resolution,
            "min": np.minimum.reduceat(values, firsts) * wave.resolution,
            "max": np.maximum.reduceat(values, firsts) * wave.resolution,
            "last": last,
            "count": (counts * STEP_S).astype(np.float64),
        },
    )


def aggregates(wave: Wave) -> Sequence[str]:
    """Return the aggregates by which a wave is read."""
    return INCREASES if wave.metric == STEPS else LEVELS
