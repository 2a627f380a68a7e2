/** Sums over some GPUs, as the api gives them for whole places. */

import type { Gpu, Status } from "../api/fleet";

export interface Sums {
  counts: Record<Status, number>;
  total: number;
  hosts: number;
  powerWatts: number | null;
  utilizationRatio: number | null;
}

function add(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

export function sumsOf(gpus: readonly Gpu[]): Sums {
  const counts = { reporting: 0, silent: 0, lost: 0, unknown: 0 };
  for (const gpu of gpus) counts[gpu.status] += 1;
  const known = (metric: string) =>
    gpus
      .filter((gpu) => gpu.status === "reporting")
      .map((gpu) => gpu.values[metric])
      .filter((value): value is number => typeof value === "number");
  const watts = known("gpu_power_watts");
  const use = known("gpu_utilization_ratio");
  return {
    counts,
    total: gpus.length,
    hosts: new Set(gpus.map((gpu) => gpu.host)).size,
    powerWatts: watts.length === 0 ? null : add(watts),
    utilizationRatio: use.length === 0 ? null : add(use) / use.length,
  };
}
