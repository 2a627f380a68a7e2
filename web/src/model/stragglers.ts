/** Find the GPUs of a job that hold back the others. Pure: figures in, ranking out. */

import type { Cell } from "./columns";

export interface Member {
  key: string;
  values: readonly Cell[];
}

export interface Straggler {
  key: string;
  /** Mean figure over the windows that are known. */
  mean: number;
  /** Share by which it stays behind the median of the others, at most 1; negative where it is ahead. */
  behindRatio: number;
  /** Windows in which it was behind by more than a tenth. */
  windows: number;
}

/** Behind by more than this counts as holding the others back. */
export const BEHIND_RATIO = 0.1;

function medianOf(values: readonly number[]): number {
  const sorted = values.slice().sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN;
}

/** Median over all members, window by window; null where fewer than half of them told. */
export function medians(members: readonly Member[], windows: number): Cell[] {
  return Array.from({ length: windows }, (_, at) => {
    const told = members.flatMap(({ values }) => values[at] ?? []);
    return told.length * 2 < members.length ? null : medianOf(told);
  });
}

function rank(member: Member, middle: readonly Cell[]): Straggler {
  let [sum, behind, known, windows] = [0, 0, 0, 0];
  middle.forEach((median, at) => {
    const value = member.values[at];
    if (median === null || value === null || value === undefined || median <= 0) return;
    const lag = 1 - value / median;
    sum += value;
    behind += lag;
    known += 1;
    if (lag > BEHIND_RATIO) windows += 1;
  });
  return {
    key: member.key,
    mean: known === 0 ? Number.NaN : sum / known,
    behindRatio: known === 0 ? 0 : behind / known,
    windows,
  };
}

/** Members by how far they stay behind the median, furthest first. */
export function rankStragglers(members: readonly Member[], windows: number): Straggler[] {
  const middle = medians(members, windows);
  return members.map((member) => rank(member, middle)).sort((a, b) => b.behindRatio - a.behindRatio);
}

/** GPU-hours that the others waited for one, where work goes on in step: at most this many. */
export function waitedHours(straggler: Straggler, members: number, slotMs: number, windows: number): number {
  const hours = (windows * slotMs) / 3_600_000;
  return Math.max(0, straggler.behindRatio) * Math.max(0, members - 1) * hours;
}
