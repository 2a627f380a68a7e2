"""Name the columns of nvidia-smi as `--query-gpu` of a recent driver does, whatever form and age a text has.

Older column names, the paths of the XML and of `-q`, and the short heads of `dmon` all come to one name, so that the
catalogue names each column once. A name that is not known stays as it is.
"""

import re

_OLDER_NAMES = {
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.gr": "clocks.current.graphics",
    "clocks.video": "clocks.current.video",
    "clocks.current.mem": "clocks.current.memory",
    "clocks.current.gr": "clocks.current.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
    "clocks.default_applications.gr": "clocks.default_applications.graphics",
    "clocks.default_applications.mem": "clocks.default_applications.memory",
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "used_memory": "used_gpu_memory",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
}

_QUERY_HEAD = re.compile(r"([^\[\]]+?)\s*(?:\[([^\]]*)\])?").fullmatch


def column_of(head: str) -> tuple[str, str]:
    """Return (column, unit) of a head of the CSV such as `memory.used [MiB]`; the unit is "" where it names none."""
    found = _QUERY_HEAD(head.strip().strip('"').strip())
    if found is None:
        return head.strip().lower(), ""
    name = found[1].lower().replace("clocks_throttle_reasons", "clocks_event_reasons")
    return _OLDER_NAMES.get(name, name), (found[2] or "").strip()


FLAGS = {
    "gpu_idle": 0x001,
    "idle": 0x001,
    "applications_clocks_setting": 0x002,
    "clocks_setting": 0x002,
    "sw_power_cap": 0x004,
    "hw_slowdown": 0x008,
    "sync_boost": 0x010,
    "sw_thermal_slowdown": 0x020,
    "hw_thermal_slowdown": 0x040,
    "hw_power_brake_slowdown": 0x080,
    "display_clocks_setting": 0x100,
    "display_clock_setting": 0x100,
}
"""Single columns of the clock event reasons and their bits."""

FLAG_PREFIX = "clocks_event_reasons."

_PATHS = {
    "product_name": "name",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "serial": "serial",
    "serial_number": "serial",
    "minor_number": "minor_number",
    "vbios_version": "vbios_version",
    "board_part_number": "board_part_number",
    "gpu_recovery_action": "gpu_recovery_action",
    "performance_state": "pstate",
    "fan_speed": "fan.speed",
    "mig_mode/current_mig": "mig.mode.current",
    "mig_mode/current": "mig.mode.current",
    "ecc_mode/current_ecc": "ecc.mode.current",
    "ecc_mode/current": "ecc.mode.current",
    "pci/pci_bus_id": "pci.bus_id",
    "pci/bus_id": "pci.bus_id",
    "pci/replay_counter": "pci.replay_counter",
    "pci/replays_since_reset": "pci.replay_counter",
    "pci/tx_util": "pcie.tx",
    "pci/rx_util": "pcie.rx",
    "pci/tx_throughput": "pcie.tx",
    "pci/rx_throughput": "pcie.rx",
    "pcie_gen/max_link_gen": "pcie.link.gen.max",
    "pcie_gen/current_link_gen": "pcie.link.gen.current",
    "pcie_generation/max": "pcie.link.gen.max",
    "pcie_generation/current": "pcie.link.gen.current",
    "link_widths/max_link_width": "pcie.link.width.max",
    "link_widths/current_link_width": "pcie.link.width.current",
    "link_width/max": "pcie.link.width.max",
    "link_width/current": "pcie.link.width.current",
    "fb_memory_usage/total": "memory.total",
    "fb_memory_usage/reserved": "memory.reserved",
    "fb_memory_usage/used": "memory.used",
    "fb_memory_usage/free": "memory.free",
    "memory_usage/total": "memory.total",
    "memory_usage/used": "memory.used",
    "memory_usage/free": "memory.free",
    "shared_fb_memory_usage/total": "memory.total",
    "shared_fb_memory_usage/reserved": "memory.reserved",
    "shared_fb_memory_usage/used": "memory.used",
    "shared_fb_memory_usage/free": "memory.free",
    "bar1_memory_usage/used": "bar1.used",
    "shared_bar1_memory/used": "bar1.used",
    "utilization/gpu_util": "utilization.gpu",
    "utilization/memory_util": "utilization.memory",
    "utilization/encoder_util": "utilization.encoder",
    "utilization/decoder_util": "utilization.decoder",
    "utilization/gpu": "utilization.gpu",
    "utilization/memory": "utilization.memory",
    "utilization/encoder": "utilization.encoder",
    "utilization/decoder": "utilization.decoder",
    "temperature/gpu_temp": "temperature.gpu",
    "temperature/gpu_current_temp": "temperature.gpu",
    "temperature/gpu_temp_tlimit": "temperature.gpu.tlimit",
    "temperature/gpu_t_limit_temp": "temperature.gpu.tlimit",
    "temperature/gpu_temp_slow_threshold": "temperature.gpu.slowdown",
    "temperature/gpu_slowdown_temp": "temperature.gpu.slowdown",
    "temperature/memory_temp": "temperature.memory",
    "temperature/memory_current_temp": "temperature.memory",
    "power_readings/power_draw": "power.draw",
    "power_readings/average_power_draw": "power.draw.average",
    "power_readings/instant_power_draw": "power.draw.instant",
    "power_readings/instantaneous_power_draw": "power.draw.instant",
    "power_readings/enforced_power_limit": "enforced.power.limit",
    "power_readings/current_power_limit": "enforced.power.limit",
    "power_readings/power_limit": "power.limit",
    "clocks/sm_clock": "clocks.current.sm",
    "clocks/mem_clock": "clocks.current.memory",
    "clocks/video_clock": "clocks.current.video",
    "clocks/sm": "clocks.current.sm",
    "clocks/memory": "clocks.current.memory",
    "clocks/video": "clocks.current.video",
    "max_clocks/sm_clock": "clocks.max.sm",
    "max_clocks/mem_clock": "clocks.max.memory",
    "max_clocks/sm": "clocks.max.sm",
    "max_clocks/memory": "clocks.max.memory",
    "applications_clocks/graphics_clock": "clocks.applications.graphics",
    "applications_clocks/graphics": "clocks.applications.graphics",
    "default_applications_clocks/graphics_clock": "clocks.default_applications.graphics",
    "default_applications_clocks/graphics": "clocks.default_applications.graphics",
    "fabric/state": "fabric.state",
    "health/summary": "fabric.health.summary",
    "ecc_errors/unrepairable_memory": "ecc.unrepairable_memory",
    "ecc_errors/memory_unrepairable": "ecc.unrepairable_memory",
    "aggregate/sram_threshold_exceeded": "ecc.errors.uncorrected.aggregate.sram.thresholdexceeded",
    "multiple_single_bit_retirement/retired_count": "retired_pages.single_bit_ecc.count",
    "double_bit_retirement/retired_count": "retired_pages.double_bit.count",
    "retired_pages/single_bit_ecc": "retired_pages.single_bit_ecc.count",
    "retired_pages/double_bit_ecc": "retired_pages.double_bit.count",
    "retired_pages/pending_retirement": "retired_pages.pending",
    "retired_pages/pending_page_blacklist": "retired_pages.pending",
    "remapped_rows/remapped_row_corr": "remapped_rows.correctable",
    "remapped_rows/remapped_row_unc": "remapped_rows.uncorrectable",
    "remapped_rows/remapped_row_pending": "remapped_rows.pending",
    "remapped_rows/remapped_row_failure": "remapped_rows.failure",
    "remapped_rows/correctable_error": "remapped_rows.correctable",
    "remapped_rows/uncorrectable_error": "remapped_rows.uncorrectable",
    "remapped_rows/pending": "remapped_rows.pending",
    "remapped_rows/remapping_failure_occurred": "remapped_rows.failure",
    "row_remapper_histogram/row_remapper_histogram_max": "remapped_rows.histogram.max",
    "row_remapper_histogram/row_remapper_histogram_high": "remapped_rows.histogram.high",
    "row_remapper_histogram/row_remapper_histogram_partial": "remapped_rows.histogram.partial",
    "row_remapper_histogram/row_remapper_histogram_low": "remapped_rows.histogram.low",
    "row_remapper_histogram/row_remapper_histogram_none": "remapped_rows.histogram.none",
    "bank_remap_availability_histogram/max": "remapped_rows.histogram.max",
    "bank_remap_availability_histogram/high": "remapped_rows.histogram.high",
    "bank_remap_availability_histogram/partial": "remapped_rows.histogram.partial",
    "bank_remap_availability_histogram/low": "remapped_rows.histogram.low",
    "bank_remap_availability_histogram/none": "remapped_rows.histogram.none",
}
"""Ends of paths of the XML and of `-q`, in lower case with `_` for everything else, and the column of each."""

_COUNTERS = {
    "sw_power_cap": "sw_power_cap",
    "sw_power_capping": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_therm_slowdown": "sw_thermal_slowdown",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "hw_therm_slowdown": "hw_thermal_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
    "hw_power_braking": "hw_power_brake_slowdown",
}

_SEVERITIES = {
    "correctable": "corrected",
    "uncorrectable": "uncorrected",
    "uncorrectable_parity": "uncorrected",
    "uncorrectable_sec_ded": "uncorrected",
    "uncorrectable_secded": "uncorrected",
}
"""How the counts of errors of one kind of memory are named; those of one severity add up to its total."""

_BITS = {"single_bit": "corrected", "double_bit": "uncorrected"}
"""Sections of older boards, which give the total themselves."""

_WORDS = re.compile(r"[^a-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def path_step(name: str) -> str:
    """Return one step of a path in lower case words joined by `_`."""
    return _WORDS.sub("_", _CAMEL.sub("_", name).lower()).strip("_")


def column_of_path(path: tuple[str, ...]) -> str:
    """Return the column that a leaf of the XML or of `-q` is, or its path joined by `/` where it is none of ours."""
    leaf, parent = path[-1], path[-2] if len(path) > 1 else ""
    parent = parent.removeprefix("gpu_") if parent == "gpu_power_readings" else parent
    known = _PATHS.get(f"{parent}/{leaf}") or (_PATHS.get(leaf) if len(path) == 1 else None)
    if known is not None:
        return known
    return _clock_column(path, leaf) or "/".join(path)


def _clock_column(path: tuple[str, ...], leaf: str) -> str:
    section = next((step for step in path[:-1] if step.startswith(("clocks_event_", "clocks_throttle_"))), "")
    if not section:
        return ""
    short = re.sub(r"^clocks_(?:event|throttle)_reasons?(?:_counters)?_", "", leaf)
    if section.endswith("_counters"):
        return f"clocks_event_reasons_counters.{_COUNTERS[short]}" if short in _COUNTERS else ""
    return FLAG_PREFIX + short if short in FLAGS else ""


def memory_errors_of(path: tuple[str, ...]) -> tuple[str, str] | None:
    """Return (column of the total, kind of memory) of a leaf that counts ECC errors, else None."""
    if path[-1] == "total" and path[-4:-3] == ("ecc_errors",) and path[-2] in _BITS:
        return f"ecc.errors.{_BITS[path[-2]]}.{path[-3]}.total", "all"
    if len(path) < 3 or path[-3] != "ecc_errors" or path[-2] not in ("volatile", "aggregate"):
        return None
    memory, _, severity = path[-1].partition("_")
    if memory not in ("sram", "dram") or severity not in _SEVERITIES:
        return None
    return f"ecc.errors.{_SEVERITIES[severity]}.{path[-2]}.total", memory


MONITOR = {
    "pwr": "power.draw",
    "gtemp": "temperature.gpu",
    "temp": "temperature.gpu",
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "enc": "utilization.encoder",
    "dec": "utilization.decoder",
    "mclk": "clocks.current.memory",
    "pclk": "clocks.current.sm",
    "fb": "memory.used",
    "bar1": "bar1.used",
    "pci": "pci.replay_counter",
    "rxpci": "pcie.rx",
    "txpci": "pcie.tx",
}
"""Heads of `dmon`."""

PROCESS_MONITOR = {"sm": "process.sm", "fb": "used_gpu_memory", "command": "process_name", "pid": "pid"}
"""Heads of `pmon`."""
