/** Put many lines into one band: extremes, the middle ninety per cent, the median. */

import type { Cell } from "./columns";

export interface Spread {
  min: Cell[];
  p5: Cell[];
  median: Cell[];
  p95: Cell[];
  max: Cell[];
}

function rank(sorted: readonly number[], share: number): Cell {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? null;
}

/** Nearest-rank figures over all lines at each instant; null where no line has a value. */
export function spreadOf(lines: readonly (readonly Cell[])[], length: number): Spread {
  const spread: Spread = { min: [], p5: [], median: [], p95: [], max: [] };
  for (let at = 0; at < length; at += 1) {
    const told = lines.flatMap((line) => line[at] ?? []).sort((a, b) => a - b);
    spread.min.push(told[0] ?? null);
    spread.p5.push(rank(told, 0.05));
    spread.median.push(rank(told, 0.5));
    spread.p95.push(rank(told, 0.95));
    spread.max.push(told.at(-1) ?? null);
  }
  return spread;
}

export interface Summary {
  /** The newest value that is there, and how long before the end it was told. */
  last: Cell;
  lastAt: number | null;
  mean: Cell;
  min: Cell;
  max: Cell;
}

/** Figures of one line; what is missing or not a number counts for nothing. */
export function summarise(ts: readonly number[], cells: readonly Cell[]): Summary {
  let [sum, count, min, max] = [0, 0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  let last: Cell = null;
  let lastAt: number | null = null;
  cells.forEach((value, at) => {
    if (value === null || !Number.isFinite(value)) return;
    sum += value;
    count += 1;
    min = Math.min(min, value);
    max = Math.max(max, value);
    last = value;
    lastAt = ts[at] ?? null;
  });
  if (count === 0) return { last, lastAt, mean: null, min: null, max: null };
  return { last, lastAt, mean: sum / count, min, max };
}
