"""Convert figures between the unit of the views and the unit that people ask for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """How figures of a base unit are shown: value x factor + offset, with a word behind.

    Attributes:
        unit: The word; "" for plain numbers.
    """

    unit: str
    factor: float
    offset: float = 0.0

    def of(self, value: float) -> float:
        """Return a stored value as it is shown."""
        return value * self.factor + self.offset

    def back(self, value: float) -> float:
        """Return a shown value in the unit of the views."""
        return (value - self.offset) / self.factor


_BYTES = {
    "B": 1.0, "kB": 1e-3, "MB": 1e-6, "GB": 1e-9, "TB": 1e-12,
    "KiB": 2.0**-10, "MiB": 2.0**-20, "GiB": 2.0**-30, "TiB": 2.0**-40,
}  # fmt: skip
_BITS = {"bit/s": 8.0, "kbit/s": 8e-3, "Mbit/s": 8e-6, "Gbit/s": 8e-9}
FAMILIES: dict[str, dict[str, tuple[float, float]]] = {
    "1": {"%": (100.0, 0.0), "": (1.0, 0.0)},
    "W": {"W": (1.0, 0.0), "kW": (1e-3, 0.0), "MW": (1e-6, 0.0)},
    "J": {
        "J": (1.0, 0.0), "kJ": (1e-3, 0.0), "MJ": (1e-6, 0.0), "GJ": (1e-9, 0.0),
        "Wh": (1 / 3.6e3, 0.0), "kWh": (1 / 3.6e6, 0.0), "MWh": (1 / 3.6e9, 0.0),
    },
    "Cel": {"°C": (1.0, 0.0), "°F": (1.8, 32.0), "K": (1.0, 273.15)},
    "By": {unit: (factor, 0.0) for unit, factor in _BYTES.items()},
    "By/s": {f"{unit}/s": (factor, 0.0) for unit, factor in _BYTES.items()}
    | {unit: (factor, 0.0) for unit, factor in _BITS.items()},
    "Hz": {"Hz": (1.0, 0.0), "MHz": (1e-6, 0.0), "GHz": (1e-9, 0.0)},
    "s": {"s": (1.0, 0.0), "min": (1 / 60, 0.0), "h": (1 / 3600, 0.0)},
    "h": {"h": (1.0, 0.0)},
}  # fmt: skip
"""Base unit of the catalogue -> unit shown -> (factor, offset)."""


def shown_in(base: str, unit: str) -> Shown | None:
    """Return how a base unit is shown in another, or None where they do not fit.

    A size of bytes on a rate means that size per second: `PCIe throughput in GB`.
    """
    family = FAMILIES.get(base, {"": (1.0, 0.0)})
    chosen = unit
    if unit not in family and f"{unit}/s" in family:
        chosen = f"{unit}/s"
    if chosen not in family:
        return None
    factor, offset = family[chosen]
    return Shown(chosen, factor, offset)
