"""Describe the boards that the simulator can put into a host: public figures of real products."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Board:
    """One GPU product.

    Attributes:
        boost_clock_mhz: Highest SM clock; clocks move in steps of 15 MHz.
        thermal_resistance: Degrees above inlet air per watt at full air flow.
        thermal_lag_seconds: Time constant of the heat sink.
    """

    name: str
    memory_bytes: int
    power_limit_watts: float
    idle_watts: float
    boost_clock_mhz: int
    base_clock_mhz: int
    memory_clock_mhz: int
    slowdown_celsius: int
    thermal_resistance: float
    thermal_lag_seconds: float
    nvlink_bytes_per_second: float
    pcie_bytes_per_second: float


H100 = Board(
    name="NVIDIA H100 80GB HBM3",
    memory_bytes=81559 * MIB,
    power_limit_watts=700.0,
    idle_watts=71.0,
    boost_clock_mhz=1980,
    base_clock_mhz=1095,
    memory_clock_mhz=2619,
    slowdown_celsius=87,
    thermal_resistance=0.052,
    thermal_lag_seconds=28.0,
    nvlink_bytes_per_second=4.5e11,
    pcie_bytes_per_second=5.5e10,
)
H200 = Board(
    name="NVIDIA H200",
    memory_bytes=143771 * MIB,
    power_limit_watts=700.0,
    idle_watts=76.0,
    boost_clock_mhz=1980,
    base_clock_mhz=1095,
    memory_clock_mhz=3201,
    slowdown_celsius=87,
    thermal_resistance=0.050,
    thermal_lag_seconds=30.0,
    nvlink_bytes_per_second=4.5e11,
    pcie_bytes_per_second=5.5e10,
)
A100 = Board(
    name="NVIDIA A100-SXM4-80GB",
    memory_bytes=81920 * MIB,
    power_limit_watts=400.0,
    idle_watts=58.0,
    boost_clock_mhz=1410,
    base_clock_mhz=1095,
    memory_clock_mhz=1593,
    slowdown_celsius=90,
    thermal_resistance=0.085,
    thermal_lag_seconds=26.0,
    nvlink_bytes_per_second=3.0e11,
    pcie_bytes_per_second=2.6e10,
)
BOARDS: tuple[Board, ...] = (H100, H200, A100)
