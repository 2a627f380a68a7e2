"""Bring the simulated GPU to a hundred metrics: 38 that an operator registers by a catalogue file, and their values.

The simulator gives 62 scalars that are not constant, 16 of them noisy. The further ones keep its shares of rollup sets
(13 distributions, 11 counters, 7 states, 7 levels), and 17 of them are noisy, so that a third of the hundred is. Noisy
ones follow activity and bandwidth of the simulated GPU as the per-pipe and per-link fields of a driver do.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PIPES, LINKS, LINK_COUNTERS = 9, 4, 4
RARE_COUNTERS, STATES, SENSORS = 7, 7, 7
NVLINKS = 18
RARE, FLIP = 2e-4, 1e-4
SEED = 20_261_130


def _line(name: str, about: str, text: str) -> str:
    return f'{name} = {{{about}, prometheus=[{{name="{name}"}}], description="{text}"}}\n'


def catalogue() -> str:
    """Return the catalogue file, which holds metrics of GPUs."""
    ratio = 'unit="1", type="gauge", rollup="distribution", priority=1, dtype="u32", resolution=1e-6, min=0, max=1'
    rate = 'unit="By/s", type="gauge", rollup="distribution", priority=1, dtype="u64", resolution=1, min=0'
    carried = 'unit="By", type="counter", rollup="increase", priority=1, dtype="u64", resolution=1, min=0'
    rare = 'unit="1", type="counter", rollup="increase", priority=2, dtype="u64", resolution=1, min=0'
    state = 'unit="bool", type="state", rollup="state", priority=1, dtype="u8", resolution=1'
    level = 'unit="Cel", type="gauge", rollup="level", priority=1, dtype="i16", resolution=1, min=-50, max=150'
    kinds = (
        ("site_pipe{}_active_ratio", ratio, PIPES, "Share of cycles in which one pipe was busy."),
        ("site_link{}_bytes_per_second", rate, LINKS, "Bytes per second over one link."),
        ("site_link{}_bytes_total", carried, LINK_COUNTERS, "Bytes over one link."),
        ("site_fault{}_total", rare, RARE_COUNTERS, "Faults of one kind."),
        ("site_flag{}", state, STATES, "Whether one condition holds."),
        ("site_sensor{}_celsius", level, SENSORS, "Temperature of one place on the board."),
    )
    return "".join(
        _line(form.format(number), about, text) for form, about, count, text in kinds for number in range(count)
    )


def write_catalogue(folder: Path) -> Path:
    """Write the catalogue file and return its path; its name says that it holds metrics of GPUs."""
    path = folder / "gpu.toml"
    path.write_text(catalogue())
    return path


class Site:
    """Values of the further metrics, second by second; keeps counters and states of every simulated GPU.

    Args:
        gpus: How many there are.
        link_step: Bytes that figures of links step by: 1,024 is what NVML counts links in.
    """

    def __init__(self, gpus: int, link_step: int = 1) -> None:
        self._step = link_step
        self._chance = np.random.default_rng(SEED)
        self._shares = self._chance.uniform(0.2, 0.9, (PIPES, 1))
        self._carried = np.zeros((LINK_COUNTERS, gpus))
        self._faults = np.zeros((RARE_COUNTERS, gpus))
        self._flags = np.zeros((STATES, gpus), dtype=bool)
        self._offsets = self._chance.uniform(-12.0, 12.0, (SENSORS, 1))
        self._heat: Floats | None = None

    def next(self, gpu: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return the values that go with one simulated second: metric -> value per GPU, in catalogue units."""
        chance, active = self._chance, gpu["gpu_sm_active_ratio"]
        rate = gpu["gpu_nvlink_transmit_bytes_per_second"] / NVLINKS
        wide = (1, active.size)
        pipes = active * self._shares + chance.normal(0.0, 0.008, (PIPES, wide[1])) * (active > 0)
        links = rate * chance.normal(1.0, 0.04, (LINKS, wide[1]))
        self._carried += self._stepped(rate * chance.normal(1.0, 0.04, self._carried.shape))
        self._faults += chance.random(self._faults.shape) < RARE
        self._flags ^= chance.random(self._flags.shape) < FLIP
        warm = gpu["gpu_temperature_celsius"]
        self._heat = warm.copy() if self._heat is None else self._heat + 0.02 * (warm - self._heat)
        return {
            **_rows("site_pipe{}_active_ratio", np.clip(pipes, 0.0, 1.0)),
            **_rows("site_link{}_bytes_per_second", self._stepped(np.maximum(links, 0.0))),
            **_rows("site_link{}_bytes_total", self._carried),
            **_rows("site_fault{}_total", self._faults),
            **_rows("site_flag{}", self._flags.astype(np.float64)),
            **_rows("site_sensor{}_celsius", np.rint(self._heat + self._offsets)),
        }

    def _stepped(self, values: Floats) -> Floats:
        return np.rint(values / self._step) * self._step


def _rows(form: str, values: Floats) -> dict[str, Floats]:
    return {form.format(number): row.copy() for number, row in enumerate(values)}
