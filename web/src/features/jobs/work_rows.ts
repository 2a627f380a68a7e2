/** Which series of a job or a model stand on its time line: its own above those of its GPUs. */

import type { RowTemplate } from "../../panels/rows/row_templates";

const GIGA = 1e9;

export const TRAINING_METRICS = [
  "training_tokens_per_second",
  "training_samples_per_second",
  "training_loss",
  "training_mfu_ratio",
  "training_rank_step_lag_seconds",
  "training_data_queue_batches",
] as const;

export const INFERENCE_METRICS = [
  "inference_requests_running",
  "inference_requests_waiting",
  "inference_generation_tokens_total",
  "inference_kv_cache_usage_ratio",
  "inference_batch_size",
] as const;

export const GPU_METRICS = [
  "gpu_utilization_ratio",
  "gpu_sm_active_ratio",
  "gpu_sm_clock_hertz",
  "gpu_power_watts",
  "gpu_temperature_celsius",
  "gpu_nvlink_transmit_bytes_per_second",
] as const;

export const WORK_ROWS: readonly RowTemplate[] = [
  {
    title: "Throughput",
    heightPx: 56,
    y: { kind: "zero", atLeast: 1 },
    lines: [
      { metric: "training_tokens_per_second", label: "Tokens" },
      { metric: "training_samples_per_second", label: "Samples" },
      { metric: "inference_generation_tokens_total", label: "Tokens" },
    ],
    noise: 1,
  },
  {
    title: "Step lag",
    heightPx: 48,
    y: { kind: "zero", atLeast: 0.01 },
    lines: [{ metric: "training_rank_step_lag_seconds", label: "Lag", stroke: "s2" }],
    noise: 0.05,
  },
  {
    title: "Loss",
    heightPx: 48,
    y: { kind: "tight", step: 0.1 },
    lines: [{ metric: "training_loss", label: "Loss", stroke: "s5" }],
    noise: 0.1,
  },
  {
    title: "MFU",
    heightPx: 48,
    y: { kind: "share" },
    lines: [{ metric: "training_mfu_ratio", label: "MFU" }],
    noise: 0.05,
  },
  {
    title: "Requests",
    heightPx: 56,
    y: { kind: "zero", atLeast: 1 },
    lines: [
      { metric: "inference_requests_running", label: "Running" },
      { metric: "inference_requests_waiting", label: "Waiting", stroke: "s2" },
    ],
    noise: 2,
  },
  {
    title: "KV cache",
    heightPx: 48,
    y: { kind: "share" },
    lines: [{ metric: "inference_kv_cache_usage_ratio", label: "Used", stroke: "s3" }],
    noise: 0.1,
  },
  {
    title: "GPU activity",
    heightPx: 64,
    y: { kind: "share" },
    lines: [
      { metric: "gpu_utilization_ratio", label: "Mean use", aggregate: "avg" },
      { metric: "gpu_utilization_ratio", label: "Lowest", aggregate: "min", stroke: "s5" },
      { metric: "gpu_sm_active_ratio", label: "SM active", aggregate: "avg", stroke: "s4" },
    ],
    noise: 0.1,
  },
  {
    title: "SM clock",
    heightPx: 48,
    y: { kind: "tight", step: 0.4 * GIGA },
    lines: [
      { metric: "gpu_sm_clock_hertz", label: "Mean", aggregate: "avg" },
      { metric: "gpu_sm_clock_hertz", label: "Lowest", aggregate: "min", stroke: "s2" },
    ],
    noise: 0.1 * GIGA,
  },
  {
    title: "Power per GPU",
    heightPx: 48,
    y: { kind: "zero", atLeast: 100 },
    lines: [{ metric: "gpu_power_watts", label: "Mean", aggregate: "avg", stroke: "s2" }],
    noise: 40,
  },
  {
    title: "Heat",
    heightPx: 48,
    y: { kind: "tight", step: 10 },
    lines: [
      { metric: "gpu_temperature_celsius", label: "Hottest", aggregate: "max", stroke: "s2" },
      { metric: "gpu_temperature_celsius", label: "Mean", aggregate: "avg", stroke: "s5" },
    ],
    noise: 4,
  },
  {
    title: "NVLink sent",
    heightPx: 48,
    y: { kind: "zero", atLeast: GIGA },
    lines: [
      { metric: "gpu_nvlink_transmit_bytes_per_second", label: "Mean", aggregate: "avg", stroke: "s3" },
    ],
    noise: 20 * GIGA,
  },
];
