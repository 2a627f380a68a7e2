/** Turn values into what a cell of the map shows: a step of a scale, and how the GPU stands. */

import { evenStep, heatStep } from "../../model/heat";
import type { Tone } from "../../ui/icon";

export interface MapMetric {
  key: string;
  label: string;
  /** Metric that is asked for; health asks for one to know who has data. */
  metric: string;
  /** Top of an even scale; the scale of temperature has steps of its own. */
  most?: number;
  /** Tokens of the scale: heat, or shares. */
  scale: "h" | "q";
  /** What stands at both ends of the legend. */
  ends: readonly [string, string];
}

export const MAP_METRICS: readonly MapMetric[] = [
  { key: "health", label: "Health", metric: "gpu_utilization_ratio", scale: "h", ends: ["", ""] },
  {
    key: "temperature",
    label: "Temperature",
    metric: "gpu_temperature_celsius",
    scale: "h",
    ends: ["30 °C", "90 °C"],
  },
  {
    key: "utilization",
    label: "Utilisation",
    metric: "gpu_utilization_ratio",
    most: 1,
    scale: "q",
    ends: ["0 %", "100 %"],
  },
  { key: "power", label: "Power", metric: "gpu_power_watts", most: 800, scale: "q", ends: ["0 W", "800 W"] },
  {
    key: "memory",
    label: "Memory",
    metric: "gpu_memory_used_bytes",
    most: 80 * 2 ** 30,
    scale: "q",
    ends: ["0", "80 GiB"],
  },
];

export function mapMetric(key: string | null): MapMetric {
  const found = MAP_METRICS.find((candidate) => candidate.key === key);
  return found ?? (MAP_METRICS[1] as MapMetric);
}

/** How a cell is drawn: 0 to 7 a step of the scale, else one of these. */
export const NO_DATA = 255;

export interface Cells {
  steps: Uint8Array;
  tones: readonly Tone[];
  values: readonly (number | null)[];
}

export interface CellInput {
  tone: Tone;
  value: number | null;
}

export function toCells(inputs: readonly CellInput[], shown: MapMetric): Cells {
  const steps = new Uint8Array(inputs.length).fill(NO_DATA);
  inputs.forEach(({ value }, at) => {
    const step = shown.most === undefined ? heatStep(value) : evenStep(value, shown.most);
    if (step !== null) steps[at] = step;
  });
  return { steps, tones: inputs.map(({ tone }) => tone), values: inputs.map(({ value }) => value) };
}

/** How many of some cells stand in each way. */
export function countTones(tones: readonly Tone[]): Record<Tone, number> {
  const counts = { ok: 0, warn: 0, bad: 0, none: 0 };
  for (const tone of tones) counts[tone] += 1;
  return counts;
}
