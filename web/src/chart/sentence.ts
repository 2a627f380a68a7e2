/** Turn one series into the sentence above its chart: its level, and the one thing that moved most. */

import type { Cell } from "../model/columns";

export interface Facts {
  label: string;
  ts: readonly number[];
  values: readonly Cell[];
  slotMs: number;
  /** Smallest move worth a word, in the metric's unit. */
  noise: number;
}

export interface Words {
  value: (value: number) => string;
  clock: (ms: number) => string;
  duration: (ms: number) => string;
}

interface Excursion {
  startMs: number;
  durationMs: number;
  extreme: number;
  direction: "fell" | "rose";
}

/** Nearest-rank median of the values that are there. */
export function median(values: readonly Cell[]): number | null {
  const present = values.filter((value): value is number => value !== null).sort((a, b) => a - b);
  return present[Math.floor((present.length - 1) / 2)] ?? null;
}

function furthest(values: readonly Cell[], middle: number): number {
  let at = -1;
  let most = -1;
  values.forEach((value, index) => {
    const distance = value === null ? -1 : Math.abs(value - middle);
    if (distance > most) {
      most = distance;
      at = index;
    }
  });
  return at;
}

/** The furthest excursion from the median: the run around it that stays beyond half its height. */
function excursion(facts: Facts, middle: number): Excursion | null {
  const at = furthest(facts.values, middle);
  const extreme = facts.values[at];
  if (extreme === null || extreme === undefined || Math.abs(extreme - middle) < facts.noise) return null;
  const beyond = (index: number) => {
    const value = facts.values[index];
    return value !== null && value !== undefined && (value - middle) / (extreme - middle) > 0.5;
  };
  let first = at;
  while (beyond(first - 1)) first -= 1;
  let last = at;
  while (beyond(last + 1)) last += 1;
  const startMs = facts.ts[first] ?? 0;
  return {
    startMs,
    durationMs: (facts.ts[last] ?? startMs) - startMs + facts.slotMs,
    extreme,
    direction: extreme < middle ? "fell" : "rose",
  };
}

/** One sentence, at most twelve words. */
export function sentence(facts: Facts, words: Words): string {
  const middle = median(facts.values);
  if (middle === null) return `${facts.label}: nothing reported in this window.`;
  const start = `${facts.label} median ${words.value(middle)}`;
  const moved = excursion(facts, middle);
  if (moved === null) return `${start}, steady.`;
  const span = words.duration(moved.durationMs);
  return `${start}, ${moved.direction} to ${words.value(moved.extreme)} at ${words.clock(moved.startMs)} for ${span}.`;
}
