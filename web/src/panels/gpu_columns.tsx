/** The columns of a table of GPUs, and the filter over it. */

import { type Catalog, type Gpu, unitOf } from "../api/fleet";
import type { Column } from "../ui/table_sort";
import { formatAge } from "../ui/times";
import { formatValue } from "../ui/units";
import { GpuStatus, rankOf } from "./status";

/** "gpu-node-0142 · 3", or the host and the end of the id where no index is known. */
export function nameOf(gpu: Pick<Gpu, "host" | "index" | "id">): string {
  return `${gpu.host} · ${gpu.index ?? gpu.id.slice(-6)}`;
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
    gpu.model,
    gpu.health.verdict,
    ...gpu.health.evidence.map(({ rule }) => rule),
  ];
  return words.join(" ").toLowerCase();
}

/** GPUs of which every word of the text is part of some name. */
export function filterGpus(gpus: readonly Gpu[], text: string): readonly Gpu[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return gpus;
  return gpus.filter((gpu) => {
    const all = searchable(gpu);
    return words.every((word) => all.includes(word));
  });
}

function ShareBar({ ratio }: { ratio: number | null | undefined }) {
  const width = Math.round(Math.min(Math.max(ratio ?? 0, 0), 1) * 100);
  return (
    <span className="share-bar" aria-hidden="true">
      <i style={{ width: `${width}%` }} />
    </span>
  );
}

/** A share as a bar and a figure. */
export function Share({ ratio, text }: { ratio: number | null | undefined; text: string }) {
  return (
    <span className="share-cell">
      <ShareBar ratio={ratio} />
      <span className="share">{text}</span>
    </span>
  );
}

interface Shown {
  key: string;
  label: string;
  metric: string;
  width: string;
  narrow?: number;
  wide?: boolean;
}

const FIGURES: readonly Shown[] = [
  { key: "utilization", label: "Utilisation", metric: "gpu_utilization_ratio", width: "96px", narrow: 64 },
  { key: "power", label: "Power", metric: "gpu_power_watts", width: "64px", wide: true },
  { key: "temperature", label: "Temperature", metric: "gpu_temperature_celsius", width: "88px", wide: true },
  { key: "memory", label: "Memory", metric: "gpu_memory_used_bytes", width: "72px", wide: true },
];

function figureColumn(shown: Shown, catalog: Catalog | undefined): Column<Gpu> {
  const { metric, ...column } = shown;
  const text = (gpu: Gpu) => formatValue(gpu.values[metric], metric, unitOf(catalog, metric));
  return {
    ...column,
    numeric: true,
    sortBy: (gpu) => gpu.values[metric] ?? null,
    cell: (gpu) =>
      metric.endsWith("_ratio") ? <Share ratio={gpu.values[metric]} text={text(gpu)} /> : text(gpu),
  };
}

/**
 * Columns of GPUs.
 *
 * `now` is the present by the platform's clock; `leaveOut` names columns that say the same in every row of a page.
 */
export function gpuColumns(
  catalog: Catalog | undefined,
  now: number,
  leaveOut: readonly string[] = [],
): Column<Gpu>[] {
  const columns: Column<Gpu>[] = [
    { key: "gpu", label: "GPU", width: "minmax(112px, 1.3fr)", narrow: 128, cell: nameOf, sortBy: nameOf },
    {
      key: "cluster",
      label: "Cluster",
      width: "minmax(64px, .8fr)",
      wide: true,
      cell: (gpu) => gpu.cluster,
      sortBy: (gpu) => gpu.cluster,
    },
    {
      key: "product",
      label: "Model",
      width: "minmax(112px, 1.2fr)",
      wide: true,
      cell: (gpu) => <span title={gpu.product}>{gpu.product.replace(/^NVIDIA /, "")}</span>,
      sortBy: (gpu) => gpu.product,
    },
    {
      key: "job",
      label: "Job",
      width: "minmax(64px, .8fr)",
      wide: true,
      cell: (gpu) => (gpu.job === "" ? "–" : gpu.job),
      sortBy: (gpu) => (gpu.job === "" ? null : gpu.job),
    },
    ...FIGURES.map((figure) => figureColumn(figure, catalog)),
    {
      key: "age",
      label: "Fresh",
      width: "56px",
      numeric: true,
      wide: true,
      cell: (gpu) => (gpu.lastSeen === null ? "never" : formatAge(now - gpu.lastSeen)),
      sortBy: (gpu) => (gpu.lastSeen === null ? null : -gpu.lastSeen),
    },
    {
      key: "status",
      label: "Status",
      width: "minmax(200px, 1.4fr)",
      narrow: 160,
      cell: (gpu) => <GpuStatus health={gpu.health} />,
      sortBy: (gpu) => rankOf(gpu.health),
    },
  ];
  return columns.filter((column) => !leaveOut.includes(column.key));
}
