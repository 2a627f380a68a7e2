/** Turn stored physical values into what people read: units, prefixes and digits from the catalogue's unit. */

export type Unit = string;

export interface Scale {
  /** Physical value / divide = shown value. */
  divide: number;
  /** Unit as shown, with its prefix. */
  label: string;
}

const SI = ["", "k", "M", "G", "T", "P"] as const;
const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi"] as const;

const SHOWN: Record<Unit, string> = {
  By: "B",
  "By/s": "B/s",
  Hz: "Hz",
  W: "W",
  J: "J",
  s: "s",
  Cel: "°C",
};

/** A unit by itself, as people write it; a plain number has none. */
export function unitWord(unit: Unit): string {
  return unit === "1" ? "" : (SHOWN[unit] ?? unit);
}

/** True for a ratio, which is shown as a percentage. */
export function isShare(metric: string, unit: Unit): boolean {
  return unit === "1" && metric.endsWith("_ratio");
}

function prefixed(unit: Unit, largest: number): Scale {
  const binary = unit === "By";
  const base = binary ? 1024 : 1000;
  const power = largest < base ? 0 : Math.min(5, Math.floor(Math.log(largest) / Math.log(base)));
  const prefix = (binary ? BINARY : SI)[power] ?? "";
  return { divide: base ** power, label: `${prefix}${SHOWN[unit] ?? unit}` };
}

/** The prefix under which values up to `largest` read best. */
export function scaleFor(metric: string, unit: Unit, largest: number): Scale {
  if (isShare(metric, unit)) return { divide: 0.01, label: "%" };
  if (unit === "Cel" || unit === "s") return { divide: 1, label: SHOWN[unit] ?? unit };
  if (unit in SHOWN) return prefixed(unit, Math.abs(largest));
  return { divide: 1, label: unit === "1" ? "" : unit };
}

/** Digits after the point, so that three figures carry the value. */
function decimalsFor(shown: number): number {
  const size = Math.abs(shown);
  if (size >= 100 || size === 0) return 0;
  if (size >= 10) return Number.isInteger(shown) ? 0 : 1;
  return Number.isInteger(shown) ? 0 : 2;
}

/** A plain number with grouped thousands; by hand, as what the browser has for it takes long to begin. */
export function formatNumber(value: number, decimals = 0): string {
  const [whole = "", fraction] = value.toFixed(decimals).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

/** "1 host", "1,248 hosts". */
export function countOf(count: number, one: string): string {
  return `${formatNumber(count)} ${one}${count === 1 ? "" : "s"}`;
}

const WHOLE = new Set(["%", "°C", "W"]);

/** A value with its unit: "94 %", "74.4 GiB", "1.37 GHz". */
export function formatValue(value: number | null | undefined, metric: string, unit: Unit): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const scale = scaleFor(metric, unit, value);
  const shown = value / scale.divide;
  const digits = WHOLE.has(scale.label) ? 0 : decimalsFor(shown);
  const number = formatNumber(shown, digits);
  return scale.label === "" ? number : `${number}\u00a0${scale.label}`;
}

/** Labels of an axis: all ticks share one prefix, the unit is not repeated. */
export function formatTicks(values: readonly number[], metric: string, unit: Unit): string[] {
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const { divide } = scaleFor(metric, unit, largest);
  const shown = values.map((value) => value / divide);
  const digits = shown.every((value) => Math.abs(value - Math.round(value)) < 1e-6) ? 0 : 1;
  return shown.map((value) => formatNumber(value, value === 0 ? 0 : digits));
}
