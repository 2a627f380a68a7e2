/** The GPUs of a host side by side: what each does now, and how it came there. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Catalog, catalogQuery, type Gpu, unitOf } from "../../api/fleet";
import { type Grouped, groupedQuery } from "../../api/grouped";
import { gpuPath, jobPath } from "../../panels/ladder";
import { Spark } from "../../panels/spark";
import { GpuStatus, rankOf } from "../../panels/status";
import { Link } from "../../ui/navigation";
import { Answered, type Answering, Broken, Panel } from "../../ui/panel";
import { Table } from "../../ui/table";
import { type Column, parseSort } from "../../ui/table_sort";
import { formatValue } from "../../ui/units";
import { keepWindow, type View } from "../../ui/view";

const SHOWN = [
  { metric: "gpu_utilization_ratio", label: "Utilisation", low: 0, high: 1 },
  { metric: "gpu_temperature_celsius", label: "Temperature", low: 30, high: 90 },
  { metric: "gpu_power_watts", label: "Power", low: 0, high: 800 },
] as const;
const BY_INDEX = { key: "index", descending: false };

/** A window of any length as some eighty points. */
function sparkResolution(lengthMs: number): string {
  return lengthMs <= 3_600_000 ? "30s" : "auto";
}

function figureColumn(
  shown: (typeof SHOWN)[number],
  catalog: Catalog | undefined,
  sparks: Grouped | undefined,
): Column<Gpu> {
  const { metric, label, low, high } = shown;
  const unit = unitOf(catalog, metric);
  return {
    key: metric,
    label,
    width: "minmax(132px, 1fr)",
    sortBy: (gpu) => gpu.values[metric] ?? null,
    numeric: true,
    wide: metric !== "gpu_utilization_ratio",
    cell: (gpu) => {
      const series = sparks?.series.find((one) => one.gpu === gpu.id && one.metric === metric);
      const values = series === undefined ? [] : (sparks?.columns.values[series.column] ?? []);
      return (
        <span className="spark-cell">
          <Spark values={values} low={low} high={high} />
          <span>{formatValue(gpu.values[metric], metric, unit)}</span>
        </span>
      );
    },
  };
}

export interface HostGpusProps {
  query: Answering<Gpu[]>;
  host: string;
  view: View;
}

export function HostGpus({ query, host, view }: HostGpusProps) {
  const { data: catalog } = useQuery(catalogQuery);
  const lengthMs = view.span.to - view.span.from;
  const { data: sparks } = useQuery(
    groupedQuery({
      metrics: SHOWN.map((shown) => shown.metric),
      aggregate: "avg",
      filters: { host },
      groupBy: "gpu",
      window: view.window,
      resolution: sparkResolution(lengthMs),
      limit: 200,
    }),
  );
  const columns = useMemo<Column<Gpu>[]>(
    () => [
      {
        key: "index",
        label: "GPU",
        width: "64px",
        cell: (gpu) => `GPU ${gpu.index ?? "?"}`,
        sortBy: (gpu) => gpu.index,
      },
      ...SHOWN.map((shown) => figureColumn(shown, catalog, sparks)),
      {
        key: "memory",
        label: "Memory",
        width: "88px",
        numeric: true,
        wide: true,
        cell: (gpu) =>
          formatValue(
            gpu.values["gpu_memory_used_bytes"],
            "gpu_memory_used_bytes",
            unitOf(catalog, "gpu_memory_used_bytes"),
          ),
        sortBy: (gpu) => gpu.values["gpu_memory_used_bytes"] ?? null,
      },
      {
        key: "job",
        label: "Job",
        width: "minmax(80px, .8fr)",
        wide: true,
        cell: (gpu) =>
          gpu.job === "" ? (
            "–"
          ) : (
            <Link to={keepWindow(view, jobPath(gpu.job))} className="link">
              {gpu.job}
            </Link>
          ),
        sortBy: (gpu) => gpu.job || null,
      },
      {
        key: "status",
        label: "Status",
        width: "minmax(116px, 1.2fr)",
        cell: (gpu) => <GpuStatus health={gpu.health} />,
        sortBy: (gpu) => rankOf(gpu.health),
      },
    ],
    [catalog, sparks, view],
  );
  return (
    <Panel title="GPUs of this host" className="children-panel" tools={<Broken query={query} />}>
      <Answered query={query} waitsFor="the GPUs of this host" height={260}>
        {(gpus) => (
          <Table
            label="GPUs of this host"
            rows={gpus}
            columns={columns}
            keyOf={(gpu) => gpu.id}
            linkOf={(gpu) => keepWindow(view, gpuPath(gpu.id))}
            sort={parseSort(view.params.get("sort"), BY_INDEX)}
            onSort={(sort) => view.set({ sort })}
            height={460}
            none="No GPU of this host is known."
          />
        )}
      </Answered>
    </Panel>
  );
}
