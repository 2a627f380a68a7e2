/** Turn values into what a cell of the map shows: a step of a scale, and how the GPU stands. */

import { type ByteFrame, valueOfByte } from "../../api/map";
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
  /** Places in `TONES`. */
  tones: Uint8Array;
  frame: ByteFrame;
}

export const TONES: readonly Tone[] = ["ok", "warn", "bad", "none"];
/** A cell whose tone is as its samples say. */
export const BY_SAMPLES = 254;
/** The same of a GPU about which a finding lasts. */
export const FOUND = 255;

export function codeOf(tone: Tone): number {
  return TONES.indexOf(tone);
}

export function toneAt(cells: Cells, at: number): Tone {
  return TONES[cells.tones[at] ?? -1] ?? "none";
}

export function valueAt({ frame }: Cells, at: number): number | null {
  return valueOfByte(frame, frame.bytes[at] ?? 0);
}

/** The step of every byte that a frame can have. */
function stepsOf(frame: ByteFrame, shown: MapMetric): Uint8Array {
  const steps = new Uint8Array(256).fill(NO_DATA);
  for (let byte = 1; byte < 256; byte += 1) {
    const value = valueOfByte(frame, byte);
    const step = shown.most === undefined ? heatStep(value) : evenStep(value, shown.most);
    if (step !== null) steps[byte] = step;
  }
  return steps;
}

/** What each cell shows; `standing` holds places in `TONES`, or that the samples tell. */
export function toCells(frame: ByteFrame, standing: Uint8Array, shown: MapMetric): Cells {
  const { bytes } = frame;
  const byStep = stepsOf(frame, shown);
  const steps = new Uint8Array(bytes.length);
  const tones = new Uint8Array(bytes.length);
  const [ok, warn, none] = [codeOf("ok"), codeOf("warn"), codeOf("none")];
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    const stands = standing[at] ?? none;
    steps[at] = byStep[byte] ?? NO_DATA;
    if (stands < BY_SAMPLES) tones[at] = stands;
    else if (byte === 0) tones[at] = none;
    else tones[at] = stands === FOUND ? warn : ok;
  }
  return { steps, tones, frame };
}

/** How many of some cells stand in each way. */
export function countTones(cells: Cells, members: Iterable<number>): Record<Tone, number> {
  const counts = { ok: 0, warn: 0, bad: 0, none: 0 };
  for (const at of members) counts[toneAt(cells, at)] += 1;
  return counts;
}
