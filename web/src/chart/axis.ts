/** Choose ranges and ticks of both axes. Pure: the same data gives the same axis. */

export type Span = [low: number, high: number];

/** How a vertical axis is bounded. */
export type YRange =
  | { kind: "share" }
  | { kind: "zero"; atLeast: number; base?: number }
  | { kind: "fixed"; high: number }
  | { kind: "tight"; step: number };

/** Extremes of some columns, missing cells aside; null where all is missing. */
export function extent(columns: readonly (readonly (number | null)[])[]): Span | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const cells of columns) {
    for (const value of cells) {
      if (value === null) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

/** The least of 1, 2, 3, 4, 5, 6, 8 x 10^n that is not below `value`; halves of it have one decimal at most. */
export function niceCeiling(value: number): number {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 3, 4, 5, 6, 8, 10].find((nice) => nice * power >= value * 0.999) ?? 10;
  return step * power;
}

/** Bounds of the vertical axis. */
export function yBounds(range: YRange, data: Span | null): Span {
  switch (range.kind) {
    case "share":
      return [0, Math.max(1, data?.[1] ?? 1)];
    case "zero":
      return [0, roundUp(Math.max(range.atLeast, data?.[1] ?? 0), range.base ?? 1)];
    case "fixed":
      return [0, Math.max(range.high, data?.[1] ?? 0)];
    case "tight":
      return tight(range.step, data ?? [0, range.step]);
  }
}

/** Round in the unit that is shown, which for bytes is a power of two. */
function roundUp(value: number, base: number): number {
  return niceCeiling(value / base) * base;
}

function tight(step: number, [low, high]: Span): Span {
  const bottom = Math.floor((low - step * 0.2) / step) * step;
  const top = Math.ceil((high + step * 0.2) / step) * step;
  const odd = (top - bottom) / step;
  if (odd > 1 && odd % 2 === 1 && bottom >= step && step >= 15) return [bottom - step, top];
  return [Math.max(0, bottom), Math.max(top, bottom + 2 * step)];
}

/** Ticks of the vertical axis: the bounds, and the middle where there is room. */
export function yTicks([low, high]: Span, heightPx: number): number[] {
  return heightPx >= 56 ? [low, (low + high) / 2, high] : [low, high];
}

const SECOND = 1000;
const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
  172_800, 604_800,
].map((seconds) => seconds * SECOND);

export interface TimeTicks {
  stepMs: number;
  at: number[];
}

/** Ticks of the time axis: whole steps in UTC, at least `roomPx` apart. */
export function timeTicks([from, to]: Span, widthPx: number, roomPx = 64): TimeTicks {
  const least = ((to - from) * roomPx) / Math.max(widthPx, 1);
  const stepMs = TIME_STEPS.find((step) => step >= least) ?? 30 * 86_400 * SECOND;
  const at: number[] = [];
  for (let tick = Math.ceil(from / stepMs) * stepMs; tick <= to; tick += stepMs) at.push(tick);
  return { stepMs, at };
}

export interface Label {
  name: string;
  y: number;
}

/** Move labels apart, so that each has `gapPx` and all stay inside [0, height]. Order is kept. */
export function spreadLabels(labels: readonly Label[], gapPx: number, heightPx: number): Label[] {
  const placed = labels.map((label) => ({ ...label })).sort((a, b) => a.y - b.y);
  let floor = 0;
  for (const label of placed) {
    label.y = Math.max(label.y, floor);
    floor = label.y + gapPx;
  }
  let ceiling = heightPx;
  for (const label of placed.slice().reverse()) {
    label.y = Math.min(label.y, ceiling);
    ceiling = label.y - gapPx;
  }
  return placed;
}
