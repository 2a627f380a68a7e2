"""Turn what jobs ask of GPUs, second by second, into what their sensors and counters would show.

Causes come first (activity, air flow, power limit), effects follow: power from activity and clock, temperature from
power with the lag of the heat sink, clocks falling when power or temperature reach their limit, counters from rates.
All arrays have one element per GPU; values are in the catalogue's units, at the resolution that NVML has.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secondsight.agent.simulate.incidents import Causes
from secondsight.agent.simulate.machines import MIB, Board

Floats = NDArray[np.float64]
REASON_IDLE, REASON_POWER_CAP, REASON_HW_SLOWDOWN, REASON_SW_THERMAL, REASON_HW_THERMAL = 0x1, 0x4, 0x8, 0x20, 0x40
INLET_CELSIUS = 24.0
CLOCK_STEP_MHZ = 15
NVLINKS = 18


@dataclass(frozen=True, slots=True)
class Demand:
    """What jobs ask for, one value per GPU, as shares 0..1 (see `jobs.Load`)."""

    activity: Floats
    tensor_share: Floats
    memory_ratio: Floats
    reading: Floats
    communicating: Floats
    writing: Floats


@dataclass(slots=True)
class GpuState:
    """State of a fleet of equal boards between two seconds."""

    board: Board
    rng: np.random.Generator
    quality: Floats  # how good each die is: some need a few per cent more power for the same work
    inlet_celsius: Floats
    activity: Floats
    wobble: Floats
    temperature: Floats
    memory_temperature: Floats
    clock_ratio: Floats
    counters: dict[str, Floats]


COUNTERS: tuple[str, ...] = (
    "gpu_energy_joules_total",
    "gpu_throttle_sw_power_cap_seconds_total",
    "gpu_throttle_sw_thermal_seconds_total",
    "gpu_throttle_hw_thermal_seconds_total",
    "gpu_throttle_hw_power_brake_seconds_total",
    "gpu_throttle_sync_boost_seconds_total",
    "gpu_idle_seconds_total",
    "gpu_pcie_replay_total",
    "gpu_pcie_correctable_errors_total",
    "gpu_nvlink_replay_errors_total",
    "gpu_nvlink_recovery_errors_total",
    "gpu_nvlink_crc_errors_total",
    "gpu_ecc_corrected_volatile_total",
    "gpu_ecc_uncorrected_volatile_total",
    "gpu_ecc_corrected_aggregate_total",
    "gpu_ecc_uncorrected_aggregate_total",
    "gpu_rows_remapped_correctable_total",
    "gpu_rows_remapped_uncorrectable_total",
)


def new_state(board: Board, gpus: int, seed: int) -> GpuState:
    """Return a fleet at rest whose dies, racks and old counters differ as real ones do."""
    rng = np.random.default_rng(seed)
    counters = {name: np.zeros(gpus) for name in COUNTERS}
    counters["gpu_energy_joules_total"] = np.round(rng.uniform(1e8, 4e9, gpus), 3)
    counters["gpu_ecc_corrected_aggregate_total"] = rng.poisson(40, gpus).astype(float)
    counters["gpu_pcie_replay_total"] = rng.poisson(3, gpus).astype(float)
    inlet = INLET_CELSIUS + rng.normal(0, 1.5, gpus)
    return GpuState(
        board=board,
        rng=rng,
        quality=np.clip(rng.normal(1.0, 0.025, gpus), 0.92, 1.09),
        inlet_celsius=inlet,
        activity=np.zeros(gpus),
        wobble=np.zeros(gpus),
        temperature=inlet + board.idle_watts * board.thermal_resistance,
        memory_temperature=inlet + 10.0,
        clock_ratio=np.full(gpus, 0.2),
        counters=counters,
    )


def step(state: GpuState, demand: Demand, causes: Causes) -> dict[str, Floats]:
    """Move the fleet by one second and return each metric's value, one per GPU."""
    activity = _activity(state, demand, causes)
    clock_mhz, power_watts, reasons = _clock_and_power(state, activity, demand)
    _warm(state, power_watts, causes)
    values = _activity_values(state, demand, activity)
    values |= _board_values(state, clock_mhz, power_watts, reasons, activity)
    values["gpu_nvlink_links_active"] = np.round(NVLINKS * causes.nvlink_up)
    values |= _memory_values(state.board, demand)
    values |= _traffic_values(state, demand, activity, causes)
    _count(state, power_watts, reasons, activity, causes)
    return values | {name: counter.copy() for name, counter in state.counters.items()}


def _activity(state: GpuState, demand: Demand, causes: Causes) -> Floats:
    """Return the share of SMs busy: the demand, approached within a second or two, with a slow wobble."""
    gpus = state.wobble.size
    state.wobble = 0.85 * state.wobble + state.rng.normal(0, 0.012, gpus)
    wanted = demand.activity * causes.activity
    state.activity += 0.8 * (wanted - state.activity)
    busy = state.activity * (1 + state.wobble)
    return np.where(wanted > 0, np.clip(busy, 0.002, 1.0), np.where(busy > 0.01, busy, 0.0)).clip(0.0, 1.0)


def _clock_and_power(state: GpuState, activity: Floats, demand: Demand) -> tuple[Floats, Floats, NDArray[np.uint64]]:
    """Settle clock and power together: work costs power, and the limits take clock away."""
    board = state.board
    busy = activity > 0.005
    span = board.power_limit_watts * 1.1 - board.idle_watts
    kernels = 1 + state.rng.normal(0, 0.02, activity.size)  # which kernels run differs from second to second
    wanted_watts = board.idle_watts + span * state.quality * kernels * activity * (0.62 + 0.5 * demand.tensor_share)
    capped = wanted_watts > board.power_limit_watts
    power_factor = np.where(capped, np.sqrt(board.power_limit_watts / wanted_watts), 1.0)
    soft, hard = state.temperature > board.slowdown_celsius - 2, state.temperature > board.slowdown_celsius
    over = np.clip(state.temperature - (board.slowdown_celsius - 2), 0, None)
    thermal_factor = np.where(hard, 0.55, np.where(soft, 1 - 0.12 * over, 1.0)).clip(0.45, 1.0)
    target = np.where(busy, np.minimum(power_factor, thermal_factor), 345 / board.boost_clock_mhz)
    state.clock_ratio += 0.7 * (target - state.clock_ratio)
    clock = np.round(board.boost_clock_mhz * state.clock_ratio / CLOCK_STEP_MHZ) * CLOCK_STEP_MHZ
    watts = np.minimum(wanted_watts * np.where(busy, thermal_factor**2, 1.0), board.power_limit_watts)
    watts = watts + state.rng.normal(0, 1.0, watts.size) * (0.5 + 7.5 * activity)
    reasons = (
        np.where(~busy, REASON_IDLE, 0)
        | np.where(busy & capped & ~soft, REASON_POWER_CAP, 0)
        | np.where(busy & soft, REASON_SW_THERMAL, 0)
        | np.where(busy & hard, REASON_HW_SLOWDOWN | REASON_HW_THERMAL, 0)
    )
    return clock, np.clip(watts, 20.0, board.power_limit_watts * 1.04), reasons.astype(np.uint64)


def _warm(state: GpuState, power_watts: Floats, causes: Causes) -> None:
    """Let temperatures follow power with the lag of the heat sink."""
    board = state.board
    goal = state.inlet_celsius + power_watts * board.thermal_resistance * 0.98 / causes.air_flow + 6.0
    state.temperature += (goal - state.temperature) / board.thermal_lag_seconds
    memory_goal = state.temperature + 4.0 + 9.0 * state.activity
    state.memory_temperature += (memory_goal - state.memory_temperature) / (board.thermal_lag_seconds * 1.4)


def _activity_values(state: GpuState, demand: Demand, activity: Floats) -> dict[str, Floats]:
    noise = state.rng.normal(0, 0.008, (6, activity.size))
    busy = activity > 0
    sm = np.where(busy, activity, 0.0)
    tensor = np.where(busy, activity * demand.tensor_share + noise[0] * activity, 0.0)
    dram = np.where(busy, activity * 0.58 + noise[1] * activity + demand.reading * 0.05, 0.0)
    return {
        "gpu_utilization_ratio": _percent(np.where(busy, activity * 1.04 + 0.01 + noise[5], 0.0)),
        "gpu_graphics_engine_active_ratio": _ratio(np.where(busy, activity * 1.02, 0.0)),
        "gpu_sm_active_ratio": _ratio(sm),
        "gpu_sm_occupancy_ratio": _ratio(sm * 0.47 + noise[2] * sm),
        "gpu_tensor_active_ratio": _ratio(tensor),
        "gpu_dram_active_ratio": _ratio(dram),
        "gpu_fp32_active_ratio": _ratio(sm * 0.11 + noise[3] * sm),
        "gpu_fp16_active_ratio": _ratio(sm * 0.06 + noise[4] * sm * 0.5),
        "gpu_fp64_active_ratio": np.zeros(activity.size),
        "gpu_memory_copy_utilization_ratio": _percent(dram * 0.9),
        "gpu_encoder_utilization_ratio": np.zeros(activity.size),
        "gpu_decoder_utilization_ratio": np.zeros(activity.size),
    }


def _board_values(
    state: GpuState, clock_mhz: Floats, power_watts: Floats, reasons: NDArray[np.uint64], activity: Floats
) -> dict[str, Floats]:
    board, gpus = state.board, activity.size
    instant = power_watts + state.rng.normal(0, 4.0, gpus) * activity
    temperature = np.round(state.temperature)
    busy = activity > 0.005
    return {
        "gpu_power_watts": power_watts.round(3),
        "gpu_power_instant_watts": np.maximum(instant, 15.0).round(3),
        "gpu_power_limit_watts": np.full(gpus, board.power_limit_watts),
        "gpu_temperature_celsius": temperature,
        "gpu_memory_temperature_celsius": np.round(state.memory_temperature),
        "gpu_temperature_margin_celsius": board.slowdown_celsius - temperature,
        "gpu_slowdown_temperature_celsius": np.full(gpus, float(board.slowdown_celsius)),
        "gpu_sm_clock_hertz": clock_mhz * 1e6,
        "gpu_memory_clock_hertz": np.full(gpus, board.memory_clock_mhz * 1e6),
        "gpu_video_clock_hertz": np.round(clock_mhz * 0.9 / CLOCK_STEP_MHZ) * CLOCK_STEP_MHZ * 1e6,
        "gpu_application_clock_hertz": np.full(gpus, board.boost_clock_mhz * 1e6),
        "gpu_boost_clock_hertz": np.full(gpus, board.boost_clock_mhz * 1e6),
        "gpu_base_clock_hertz": np.full(gpus, board.base_clock_mhz * 1e6),
        "gpu_boost_memory_clock_hertz": np.full(gpus, board.memory_clock_mhz * 1e6),
        "gpu_performance_state": np.zeros(gpus),
        "gpu_clock_event_reasons": reasons.astype(np.float64),
        "gpu_pcie_link_generation": np.where(busy, 5.0, 1.0),
        "gpu_pcie_link_width": np.full(gpus, 16.0),
        "gpu_pcie_max_link_generation": np.full(gpus, 5.0),
        "gpu_pcie_max_link_width": np.full(gpus, 16.0),
        "gpu_pcie_link_degraded": np.zeros(gpus),
        "gpu_recovery_action": np.zeros(gpus),
        "gpu_row_remap_pending": np.zeros(gpus),
        "gpu_row_remap_failed": np.zeros(gpus),
        "gpu_lost": np.zeros(gpus),
        "gpu_fabric_state": np.full(gpus, 3.0),
        "gpu_mig_mode": np.zeros(gpus),
        "gpu_ecc_mode": np.ones(gpus),
    }


def _memory_values(board: Board, demand: Demand) -> dict[str, Floats]:
    total = float(board.memory_bytes)
    reserved = float(round(total * 0.0058 / MIB) * MIB)
    used = np.round((demand.memory_ratio * (total - reserved) + 4 * MIB) / (2 * MIB)) * 2 * MIB
    used = np.minimum(used, total - reserved)
    return {
        "gpu_memory_total_bytes": np.full(used.size, total),
        "gpu_memory_used_bytes": used,
        "gpu_memory_reserved_bytes": np.full(used.size, reserved),
        "gpu_memory_free_bytes": total - reserved - used,
        "gpu_memory_used_ratio": _ratio(used / (total - reserved)),
        "gpu_bar1_used_bytes": np.full(used.size, 6.0 * MIB),
    }


def _traffic_values(state: GpuState, demand: Demand, activity: Floats, causes: Causes) -> dict[str, Floats]:
    board, gpus = state.board, activity.size
    jitter = 1 + state.rng.normal(0, 0.06, (4, gpus))
    scale = np.clip(activity * 1.1, 0, 1)
    exchanged = demand.communicating * scale * board.nvlink_bytes_per_second * causes.nvlink_up
    rates = {
        "gpu_pcie_receive_bytes_per_second": demand.reading * board.pcie_bytes_per_second * 0.5 * jitter[0],
        "gpu_pcie_transmit_bytes_per_second": (demand.writing + 0.01 * scale) * board.pcie_bytes_per_second * jitter[1],
        "gpu_nvlink_transmit_bytes_per_second": exchanged * jitter[2],
        "gpu_nvlink_receive_bytes_per_second": exchanged * jitter[3],
    }
    return {name: np.round(np.clip(rate, 0, None) / MIB) * MIB for name, rate in rates.items()}


def _count(state: GpuState, power_watts: Floats, reasons: NDArray[np.uint64], activity: Floats, causes: Causes) -> None:
    """Advance every counter by this second."""
    counters, rng, gpus = state.counters, state.rng, activity.size
    counters["gpu_energy_joules_total"] = np.round(counters["gpu_energy_joules_total"] + power_watts, 3)
    for name, bit in _THROTTLE_BITS.items():
        counters[name] += (reasons & np.uint64(bit)) != 0
    counters["gpu_idle_seconds_total"] += activity < 0.01
    corrected = rng.poisson(causes.corrected_ecc_per_second)
    counters["gpu_ecc_corrected_volatile_total"] += corrected
    counters["gpu_ecc_corrected_aggregate_total"] += corrected
    counters["gpu_pcie_replay_total"] += rng.poisson(4e-5, gpus)
    counters["gpu_nvlink_replay_errors_total"] += rng.poisson(causes.nvlink_errors_per_second)
    uncorrected = rng.poisson(1e-9 + causes.corrected_ecc_per_second * 2e-8)
    counters["gpu_ecc_uncorrected_volatile_total"] += uncorrected
    counters["gpu_ecc_uncorrected_aggregate_total"] += uncorrected
    counters["gpu_rows_remapped_uncorrectable_total"] += uncorrected


_THROTTLE_BITS: Mapping[str, int] = {
    "gpu_throttle_sw_power_cap_seconds_total": REASON_POWER_CAP,
    "gpu_throttle_sw_thermal_seconds_total": REASON_SW_THERMAL,
    "gpu_throttle_hw_thermal_seconds_total": REASON_HW_THERMAL,
}


def _ratio(values: Floats) -> Floats:
    """Return ratios at the step of the profiling counters, 1e-6, inside 0..1."""
    return np.asarray(np.round(np.clip(values, 0.0, 1.0), 6), dtype=np.float64)


def _percent(values: Floats) -> Floats:
    """Return ratios at the step of the utilisation counters, one per cent, inside 0..1."""
    return np.asarray(np.round(np.clip(values, 0.0, 1.0), 2), dtype=np.float64)
