/** The window on time that a page shows, as its address says it. */

/** The last `lengthMs`, sliding; or a fixed one, half open. */
export type Window = { live: true; lengthMs: number } | { live: false; from: number; to: number };

export interface Range {
  name: string;
  label: string;
  ms: number;
}

const MINUTE_MS = 60_000;

export const RANGES: readonly Range[] = [
  { name: "5m", label: "5 min", ms: 5 * MINUTE_MS },
  { name: "15m", label: "15 min", ms: 15 * MINUTE_MS },
  { name: "1h", label: "1 h", ms: 60 * MINUTE_MS },
  { name: "6h", label: "6 h", ms: 360 * MINUTE_MS },
  { name: "24h", label: "24 h", ms: 1440 * MINUTE_MS },
  { name: "7d", label: "7 d", ms: 7 * 1440 * MINUTE_MS },
  { name: "30d", label: "30 d", ms: 30 * 1440 * MINUTE_MS },
  { name: "90d", label: "90 d", ms: 90 * 1440 * MINUTE_MS },
];

const LEAST_MS = 5000;

function instant(text: string | null): number | null {
  if (text === null) return null;
  const ms = /^\d+$/.test(text) ? Number(text) : Date.parse(text);
  return Number.isFinite(ms) ? ms : null;
}

/** Window that an address asks for: `from` and `to` fix it, `range` lets it slide. */
export function parseWindow(search: string, defaultRange: string): Window {
  const params = new URLSearchParams(search);
  const from = instant(params.get("from"));
  const to = instant(params.get("to"));
  if (from !== null && to !== null && to > from) return { live: false, from, to };
  return { live: true, lengthMs: rangeNamed(params.get("range") ?? defaultRange).ms };
}

function rangeNamed(name: string): Range {
  const [first, second] = RANGES;
  return RANGES.find((range) => range.name === name) ?? second ?? (first as Range);
}

/** Name of the range that a sliding window shows; null for a fixed one. */
export function rangeOf(window: Window): string | null {
  if (!window.live) return null;
  return RANGES.find((range) => range.ms === window.lengthMs)?.name ?? null;
}

/** "2026-11-29T10:15:00Z": whole seconds, as addresses carry them. */
export function formatInstant(ms: number): string {
  return `${new Date(Math.floor(ms / 1000) * 1000).toISOString().slice(0, 19)}Z`;
}

/** Address parameters of a fixed window. */
export function fixedParams(from: number, to: number): Record<string, string | undefined> {
  return { from: formatInstant(from), to: formatInstant(to) };
}

/** Address parameters of a sliding window. */
export function liveParams(range: string | undefined): Record<string, string | undefined> {
  return { from: undefined, to: undefined, range };
}

/** A window of at least five seconds inside what was dragged. */
export function zoomed(from: number, to: number): { from: number; to: number } {
  const middle = (from + to) / 2;
  const half = Math.max(to - from, LEAST_MS) / 2;
  return { from: middle - half, to: middle + half };
}

/** The same length, moved by half of itself; not beyond the present. */
export function moved(
  from: number,
  to: number,
  direction: -1 | 1,
  now: number,
): { from: number; to: number } {
  const length = to - from;
  const end = Math.min(to + (direction * length) / 2, Math.max(now, to));
  return { from: end - length, to: end };
}

/** Four times as wide around the same middle, not beyond the present. */
export function widened(from: number, to: number, now: number): { from: number; to: number } {
  const middle = (from + to) / 2;
  const half = (to - from) * 2;
  const end = Math.min(middle + half, now);
  return { from: end - 2 * half, to: end };
}

/** The finest resolution that a window of this length is read at. */
export function resolutionFor(lengthMs: number): string {
  return lengthMs <= 3_600_000 ? "1s" : "auto";
}

/** Milliseconds of a resolution as the api says it ("1s", "30s", "5m", "1h", "1d"); null when it is none. */
export function parseResolution(text: string): number | null {
  const match = /^(\d+)(ms|s|m|h|d)$/.exec(text);
  const [, count, unit] = match ?? [];
  const widths: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  const width = widths[unit ?? ""];
  return count === undefined || width === undefined ? null : Number(count) * width;
}
