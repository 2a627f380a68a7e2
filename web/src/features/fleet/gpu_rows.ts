/** Filter and sort the list of GPUs. */

import type { Gpu, Status } from "../../api/fleet";

export interface Column {
  key: string;
  label: string;
  /** Metric that the column shows; none for text. */
  metric?: string;
  numeric: boolean;
}

export const COLUMNS: readonly Column[] = [
  { key: "gpu", label: "GPU", numeric: false },
  { key: "cluster", label: "Cluster", numeric: false },
  { key: "product", label: "Model", numeric: false },
  { key: "job", label: "Job", numeric: false },
  { key: "utilization", label: "Utilisation", metric: "gpu_utilization_ratio", numeric: true },
  { key: "power", label: "Power", metric: "gpu_power_watts", numeric: true },
  { key: "temperature", label: "Temperature", metric: "gpu_temperature_celsius", numeric: true },
  { key: "memory", label: "Memory", metric: "gpu_memory_used_bytes", numeric: true },
  { key: "age", label: "Fresh", numeric: true },
  { key: "status", label: "Status", numeric: false },
];

export interface Sort {
  key: string;
  descending: boolean;
}

const SEVERITY: Record<Status, number> = { lost: 0, silent: 1, unknown: 2, reporting: 3 };

/** "gpu-node-0142 · 3", or the host and the end of the id where no index is known. */
export function nameOf(gpu: Gpu): string {
  return `${gpu.host} · ${gpu.index ?? gpu.id.slice(-6)}`;
}

/** Sort that an address asks for: "-temperature" descends; without one, the worst come first. */
export function parseSort(text: string | null): Sort {
  if (text === null || text === "") return { key: "status", descending: false };
  const descending = text.startsWith("-");
  return { key: descending ? text.slice(1) : text, descending };
}

/** What an address says after a click on a column: numbers descend first, a second click turns round. */
export function nextSort(sort: Sort, column: Column): string {
  const descending = sort.key === column.key ? !sort.descending : column.numeric;
  return `${descending ? "-" : ""}${column.key}`;
}

function searchable(gpu: Gpu): string {
  const words = [
    gpu.id,
    nameOf(gpu),
    gpu.host,
    gpu.cluster,
    gpu.rack,
    gpu.product,
    gpu.job,
    gpu.team,
    gpu.status,
  ];
  return words.join(" ").toLowerCase();
}

/** GPUs of which every word of the text is part of some name. */
export function filterGpus(gpus: readonly Gpu[], text: string): Gpu[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return gpus.slice();
  return gpus.filter((gpu) => {
    const all = searchable(gpu);
    return words.every((word) => all.includes(word));
  });
}

function sortValue(gpu: Gpu, key: string): number | string | null {
  const column = COLUMNS.find((candidate) => candidate.key === key);
  if (column?.metric !== undefined) return gpu.values[column.metric] ?? null;
  switch (key) {
    case "cluster":
      return gpu.cluster;
    case "product":
      return gpu.product;
    case "job":
      return gpu.job === "" ? null : gpu.job;
    case "age":
      return gpu.lastSeen === null ? null : -gpu.lastSeen;
    case "status":
      return SEVERITY[gpu.status];
    default:
      return nameOf(gpu);
  }
}

const NATURAL = new Intl.Collator("en", { numeric: true });

function compare(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b : NATURAL.compare(String(a), String(b));
}

/** GPUs in order; what is missing comes last either way, equals by name. */
export function sortGpus(gpus: readonly Gpu[], sort: Sort): Gpu[] {
  const direction = sort.descending ? -1 : 1;
  const keyed = gpus.map((gpu) => ({ gpu, name: nameOf(gpu), value: sortValue(gpu, sort.key) }));
  keyed.sort((a, b) => {
    if (a.value === null || b.value === null) {
      return Number(a.value === null) - Number(b.value === null) || NATURAL.compare(a.name, b.name);
    }
    return direction * compare(a.value, b.value) || NATURAL.compare(a.name, b.name);
  });
  return keyed.map(({ gpu }) => gpu);
}
