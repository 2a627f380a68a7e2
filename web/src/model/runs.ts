/** Runs of a state inside a window. */

import type { Cell } from "./columns";

export type Run = readonly [from: number, to: number];

/** Runs in which a bit of a bitmask was set; what was not told belongs to no run. */
export function runsOfBit(
  ts: readonly number[],
  cells: readonly Cell[],
  bit: number,
  slotMs: number,
  [from, to]: readonly [number, number],
): Run[] {
  const runs: Run[] = [];
  let start: number | null = null;
  let end = 0;
  ts.forEach((instant, index) => {
    const value = cells[index];
    const isSet = value !== null && value !== undefined && (value & bit) !== 0;
    if (start !== null && (!isSet || instant > end + slotMs)) {
      runs.push([start, end]);
      start = null;
    }
    if (!isSet) return;
    start ??= instant;
    end = instant + slotMs;
  });
  if (start !== null) runs.push([start, end]);
  return runs.filter((run) => run[1] > from && run[0] < to);
}
