/** Turn answers into columns that can be drawn: tails merged, old rows dropped, missing slots found and broken. */

export type Cell = number | null;

export interface Columns {
  /** Window starts, epoch milliseconds, ascending, without repeats. */
  ts: number[];
  /** One column a name, as long as `ts`. */
  values: Record<string, Cell[]>;
}

export interface Gap {
  /** First missing slot. */
  start: number;
  /** Next present slot. */
  end: number;
}

export const EMPTY: Columns = { ts: [], values: {} };

/** Index of the first instant that is not before `ms`. */
export function lowerBound(ts: readonly number[], ms: number): number {
  let low = 0;
  let high = ts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ts[middle] ?? 0) < ms) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Rows of [from, to). */
export function sliceRows(columns: Columns, from: number, to: number): Columns {
  const first = lowerBound(columns.ts, from);
  const last = lowerBound(columns.ts, to);
  const values: Record<string, Cell[]> = {};
  for (const [name, cells] of Object.entries(columns.values)) values[name] = cells.slice(first, last);
  return { ts: columns.ts.slice(first, last), values };
}

function pad(cells: Cell[] | undefined, length: number): Cell[] {
  return cells ?? new Array<Cell>(length).fill(null);
}

/**
 * Replace everything from `tailFrom` on by the tail, and drop rows before `keepFrom`.
 * The tail is the newer truth: a row it does not hold is gone, a row it adds late appears.
 */
export function mergeTail(known: Columns, tail: Columns, tailFrom: number, keepFrom: number): Columns {
  const head = sliceRows(known, keepFrom, tailFrom);
  const rest = sliceRows(tail, Math.max(tailFrom, keepFrom), Number.POSITIVE_INFINITY);
  const names = new Set([...Object.keys(known.values), ...Object.keys(tail.values)]);
  const values: Record<string, Cell[]> = {};
  for (const name of names) {
    values[name] = pad(head.values[name], head.ts.length).concat(pad(rest.values[name], rest.ts.length));
  }
  return { ts: head.ts.concat(rest.ts), values };
}

/**
 * Runs of missing slots longer than max(3 slots, 3 s), between rows and before the first one.
 * The end of the window is no gap: what is not there yet may still come.
 */
export function findGaps(ts: readonly number[], slotMs: number, from: number): Gap[] {
  const least = Math.max(3 * slotMs, 3000);
  const gaps: Gap[] = [];
  let previous = from - slotMs;
  for (const instant of ts) {
    if (instant - previous - slotMs > least) gaps.push({ start: previous + slotMs, end: instant });
    previous = instant;
  }
  return gaps;
}

/** The same columns with one empty row inside each gap, so that no line crosses it. */
export function breakAtGaps(columns: Columns, gaps: readonly Gap[]): Columns {
  const inner = gaps.filter((gap) => gap.start > (columns.ts[0] ?? Number.POSITIVE_INFINITY));
  if (inner.length === 0) return columns;
  const ts = columns.ts.slice();
  const entries = Object.entries(columns.values).map(([name, cells]) => [name, cells.slice()] as const);
  for (const gap of inner) {
    const at = lowerBound(ts, gap.end);
    ts.splice(at, 0, gap.start);
    for (const [, cells] of entries) cells.splice(at, 0, null);
  }
  return { ts, values: Object.fromEntries(entries) };
}

/** Row that covers an instant: the last one at or before it, unless that ended more than one slot ago. */
export function rowAt(ts: readonly number[], ms: number, slotMs: number): number | null {
  const index = lowerBound(ts, ms + 1) - 1;
  const start = ts[index];
  return start !== undefined && ms < start + slotMs ? index : null;
}

/** Newest value of a column that is not missing. */
export function newest(cells: readonly Cell[] | undefined): Cell {
  for (let index = (cells?.length ?? 0) - 1; index >= 0; index -= 1) {
    const value = cells?.[index];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}
