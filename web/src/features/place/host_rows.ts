/** Which series of a host stand on its time line, from top to bottom. */

import type { RowTemplate } from "../../panels/rows/row_templates";

const GIGA = 1e9;

export const GPU_METRICS = [
  "gpu_utilization_ratio",
  "gpu_temperature_celsius",
  "gpu_power_watts",
  "gpu_nvlink_transmit_bytes_per_second",
] as const;

export const NODE_METRICS = [
  "node_cpu_utilization_ratio",
  "node_memory_available_bytes",
  "node_network_io_bytes_total",
  "node_disk_io_bytes_total",
] as const;

export const HOST_ROWS: readonly RowTemplate[] = [
  {
    title: "GPU activity",
    heightPx: 64,
    y: { kind: "share" },
    lines: [
      { metric: "gpu_utilization_ratio", label: "Mean", aggregate: "avg" },
      { metric: "gpu_utilization_ratio", label: "Lowest", aggregate: "min", stroke: "s5" },
    ],
    noise: 0.1,
  },
  {
    title: "GPU heat",
    heightPx: 56,
    y: { kind: "tight", step: 10 },
    lines: [
      { metric: "gpu_temperature_celsius", label: "Hottest", aggregate: "max", stroke: "s2" },
      { metric: "gpu_temperature_celsius", label: "Mean", aggregate: "avg", stroke: "s5" },
    ],
    noise: 4,
  },
  {
    title: "GPU power, mean",
    heightPx: 48,
    y: { kind: "zero", atLeast: 100 },
    lines: [{ metric: "gpu_power_watts", label: "Power", aggregate: "avg", stroke: "s2" }],
    noise: 40,
  },
  {
    title: "NVLink sent, mean",
    heightPx: 48,
    y: { kind: "zero", atLeast: GIGA },
    lines: [
      { metric: "gpu_nvlink_transmit_bytes_per_second", label: "Sent", aggregate: "avg", stroke: "s3" },
    ],
    noise: 20 * GIGA,
  },
  {
    title: "CPU",
    heightPx: 48,
    y: { kind: "share" },
    lines: [{ metric: "node_cpu_utilization_ratio", label: "Busy" }],
    noise: 0.1,
  },
  {
    title: "Memory free",
    heightPx: 48,
    y: { kind: "zero", atLeast: GIGA, base: 2 ** 30 },
    lines: [{ metric: "node_memory_available_bytes", label: "Available" }],
    area: true,
    noise: 8 * GIGA,
  },
  {
    title: "Network",
    heightPx: 48,
    y: { kind: "zero", atLeast: 1e6 },
    lines: [{ metric: "node_network_io_bytes_total", label: "" }],
    noise: 1e8,
  },
  {
    title: "Disk",
    heightPx: 48,
    y: { kind: "zero", atLeast: 1e6 },
    lines: [{ metric: "node_disk_io_bytes_total", label: "" }],
    noise: 1e8,
  },
];
