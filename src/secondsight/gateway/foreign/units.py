"""Heed the unit that a sender names for its figures, before the scale by which the catalogue knows its source."""

from dataclasses import replace

from secondsight.catalog.metric import Metric, Source

SCALES: dict[str, dict[str, float]] = {
    "1": {"%": 0.01, "percent": 0.01},
    "s": {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    "By": {"KiBy": 2**10, "MiBy": 2**20, "GiBy": 2**30, "kBy": 1e3, "MBy": 1e6, "GBy": 1e9, "bit": 0.125},
    "By/s": {"KiBy/s": 2**10, "MiBy/s": 2**20, "GiBy/s": 2**30, "kBy/s": 1e3, "MBy/s": 1e6, "GBy/s": 1e9},
    "W": {"mW": 1e-3, "kW": 1e3},
    "J": {"mJ": 1e-3, "kJ": 1e3, "W.s": 1.0, "W.h": 3600.0, "kW.h": 3.6e6},
    "Hz": {"kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
}
"""Unit of the catalogue -> units in UCUM that senders use for the same, with the factor to it."""


def source_for_unit(metric: Metric, source: Source, unit: str) -> Source:
    """Return the source with the scale that its unit asks for.

    A source with values of its own keeps them; `1` says nothing, as it is what senders have that name no unit.
    """
    scale = 1.0 if unit == metric.unit != "1" else SCALES.get(metric.unit, {}).get(unit)
    return source if scale is None or source.translate else replace(source, scale=scale)
