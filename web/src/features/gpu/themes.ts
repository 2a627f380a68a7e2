/** Which metrics of a GPU belong on one chart, and how it is bounded. A new panel is one entry here. */

import type { LaneSpec, RowSpec } from "../../panels/rows/spec";
import { metricsOf } from "../../panels/rows/spec";

const GIGA = 1e9;

export const THEMES: readonly RowSpec[] = [
  {
    title: "Activity",
    heightPx: 96,
    y: { kind: "share" },
    lines: [
      { metric: "gpu_utilization_ratio", label: "Utilisation", stroke: "s1" },
      { metric: "gpu_sm_active_ratio", label: "SM active", stroke: "s4" },
      { metric: "gpu_tensor_active_ratio", label: "Tensor active", head: "Tensor", stroke: "s2" },
      { metric: "gpu_dram_active_ratio", label: "DRAM active", head: "DRAM", stroke: "s3" },
    ],
    noise: 0.1,
  },
  {
    title: "Memory",
    heightPx: 48,
    y: { kind: "zero", atLeast: GIGA },
    lines: [{ metric: "gpu_memory_used_bytes", label: "Used", head: "Memory", stroke: "s1" }],
    area: true,
    ceiling: "gpu_memory_total_bytes",
    noise: GIGA,
  },
  {
    title: "Power",
    heightPx: 64,
    y: { kind: "zero", atLeast: 100 },
    lines: [{ metric: "gpu_power_watts", label: "Power", stroke: "s2" }],
    limit: { metric: "gpu_power_limit_watts", label: "Limit" },
    noise: 40,
  },
  {
    title: "Clocks",
    heightPx: 56,
    y: { kind: "tight", step: 0.4 * GIGA },
    lines: [
      { metric: "gpu_sm_clock_hertz", label: "SM clock", stroke: "s1" },
      { metric: "gpu_memory_clock_hertz", label: "Memory clock", head: "HBM clock", stroke: "s3" },
    ],
    noise: 0.1 * GIGA,
  },
  {
    title: "Thermals",
    heightPx: 72,
    y: { kind: "tight", step: 10 },
    lines: [
      { metric: "gpu_temperature_celsius", label: "GPU", stroke: "s2" },
      { metric: "gpu_memory_temperature_celsius", label: "HBM", stroke: "s3" },
    ],
    limit: { metric: "gpu_slowdown_temperature_celsius", label: "Slowdown" },
    noise: 4,
  },
  {
    title: "NVLink",
    heightPx: 56,
    y: { kind: "zero", atLeast: GIGA },
    lines: [
      { metric: "gpu_nvlink_transmit_bytes_per_second", label: "Sent", head: "NVLink out", stroke: "s1" },
      { metric: "gpu_nvlink_receive_bytes_per_second", label: "Received", head: "NVLink in", stroke: "s3" },
    ],
    noise: 20 * GIGA,
  },
  {
    title: "PCIe",
    heightPx: 56,
    y: { kind: "zero", atLeast: GIGA },
    lines: [
      { metric: "gpu_pcie_transmit_bytes_per_second", label: "Sent", head: "PCIe out", stroke: "s1" },
      { metric: "gpu_pcie_receive_bytes_per_second", label: "Received", head: "PCIe in", stroke: "s3" },
    ],
    noise: 5 * GIGA,
  },
];

/** Why the clocks are not at their highest. */
export const THROTTLE: LaneSpec = {
  title: "Clocks held",
  metric: "gpu_clock_event_reasons",
  lanes: [
    { bit: 64, token: "warn-mark" },
    { bit: 32, token: "s5" },
    { bit: 128, token: "bad-mark" },
    { bit: 4, token: "ghost" },
  ],
};

/** Every metric that the charts read, once each. */
export const METRICS: readonly string[] = metricsOf(THEMES, [THROTTLE]);
