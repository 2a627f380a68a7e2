/** Sums over some GPUs, as the api gives them for whole places. */

import type { Fleet, Gpu, HealthCounts, Status } from "../api/fleet";
import type { Board, Sum } from "../live/board";

export interface Sums {
  counts: Record<Status, number>;
  health: HealthCounts;
  total: number;
  hosts: number;
  powerWatts: number | null;
  utilizationRatio: number | null;
}

function add(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** GPUs by verdict, and by what the verdicts rest on. */
export function healthOf(gpus: readonly Gpu[]): HealthCounts {
  const health: HealthCounts = { healthy: 0, degraded: 0, unavailable: 0, unknown: 0, reasons: {} };
  for (const { health: one } of gpus) {
    health[one.verdict] += 1;
    for (const { rule } of one.evidence) health.reasons[rule] = (health.reasons[rule] ?? 0) + 1;
  }
  return health;
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
    health: healthOf(gpus),
    total: gpus.length,
    hosts: new Set(gpus.map((gpu) => gpu.host)).size,
    powerWatts: watts.length === 0 ? null : add(watts),
    utilizationRatio: use.length === 0 ? null : add(use) / use.length,
  };
}

function hottestOf(board: Board, { max, cell }: Sum, known: Fleet["hottest"]): Fleet["hottest"] {
  const place = board.cells[cell];
  if (place === undefined) return known;
  return { gpuId: place.id, hostId: place.host, index: place.index, temperatureCelsius: max };
}

/** The fleet with its load and heat of the newest second; health comes with the summary alone. */
export function withLive(fleet: Fleet, board: Board | null): Fleet {
  if (board === null) return fleet;
  const {
    gpu_power_watts: watts,
    gpu_utilization_ratio: use,
    gpu_temperature_celsius: heat,
  } = board.sums as Partial<Board["sums"]>;
  return {
    ...fleet,
    powerWatts: watts?.sum ?? fleet.powerWatts,
    utilizationRatio: use === undefined ? fleet.utilizationRatio : use.sum / use.count,
    hottest: heat === undefined ? fleet.hottest : hottestOf(board, heat, fleet.hottest),
  };
}
