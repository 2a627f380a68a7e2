/** Ask for series told apart by labels: one line a GPU, a host, a team. */

import { queryOptions } from "@tanstack/react-query";
import type { Columns } from "../model/columns";
import type { Window } from "../model/window";
import { addressOf, request } from "./client";
import { boundsOf } from "./events";
import type { Filters } from "./fleet";
import { type Meta, toInstant, toMeta } from "./meta";
import { POLL_MAXIMUM_MS } from "./series";
import type { WireColumns, WireSeries } from "./wire";

export interface Series {
  /** Name of its column. */
  column: string;
  metric: string;
  aggregate: string;
  /** Unit of its figures, which for a rate is not that of the metric. */
  unit: string;
  /** What tells it apart, in the order of the ladder; empty for a total. */
  label: string;
  gpu: string;
  host: string;
}

export interface Grouped {
  columns: Columns;
  series: Series[];
  /** How many series there are; more than came where the list was cut. */
  total: number;
  meta: Meta;
  from: number;
  to: number;
}

export interface GroupedRequest {
  metrics: readonly string[];
  /** Empty takes the one that the catalogue names for each metric. */
  aggregate: string;
  filters: Filters & { gpuModel?: string };
  /** Empty tells entities and their parts apart. */
  groupBy: string;
  window: Window;
  resolution: string;
  limit: number;
  /** Read this much earlier than the window, and move it there. */
  earlierMs?: number;
}

const LABELS = [
  "region",
  "clusterId",
  "hostId",
  "gpuId",
  "entityId",
  "part",
  "jobId",
  "workloadId",
  "ownerTeam",
  "modelId",
  "gpuModel",
] as const;

/** Characters of an id that tell the GPUs of a host apart. */
const ID_SHOWN = 12;

function labelOf(series: WireSeries, whole: boolean): string {
  const words = LABELS.map((name) => {
    const word = series[name] ?? "";
    return whole || word !== series.gpuId ? word : word.slice(0, ID_SHOWN);
  });
  return [...new Set(words.filter(Boolean))].join(" · ");
}

function toSeries(wire: WireSeries): Series {
  return {
    column: [wire.metric, wire.aggregate, labelOf(wire, true)].join("\n"),
    metric: wire.metric,
    aggregate: wire.aggregate,
    unit: wire.unit,
    label: labelOf(wire, false),
    gpu: wire.gpuId ?? "",
    host: wire.hostId ?? "",
  };
}

function parametersOf(asked: GroupedRequest, bounds: { from: string | number; to: string | number }) {
  return {
    metrics: asked.metrics.join(","),
    ...asked.filters,
    ...bounds,
    resolution: asked.resolution,
    aggregate: asked.aggregate,
    groupBy: asked.groupBy,
    limit: asked.limit,
  };
}

/** The request as an address, such as to copy it; the format is left to who asks. */
export function groupedAddress(
  asked: GroupedRequest,
  span: { from: number; to: number },
  format: string,
): string {
  const bounds = { from: new Date(span.from).toISOString(), to: new Date(span.to).toISOString() };
  return addressOf("/v1/metrics/query", { ...parametersOf(asked, bounds), format });
}

function earlier(asked: GroupedRequest): { from: string | number; to: string | number } {
  const { window, earlierMs = 0 } = asked;
  if (earlierMs === 0) return boundsOf(window);
  const to = (window.live ? Date.now() : window.to) - earlierMs;
  return { from: window.live ? to - window.lengthMs : window.from - earlierMs, to };
}

async function fetchGrouped(asked: GroupedRequest, signal: AbortSignal): Promise<Grouped> {
  const { earlierMs = 0 } = asked;
  const wire = await request<WireColumns>("/v1/metrics/query", {
    params: { ...parametersOf(asked, earlier(asked)), format: "columns" },
    signal,
  });
  const series = wire.series.map(toSeries);
  const cells = wire.series.map((one, at) => [series[at]?.column ?? "", one.values ?? []] as const);
  const ts = wire.ts ?? [];
  return {
    columns: {
      ts: earlierMs === 0 ? ts : ts.map((instant) => instant + earlierMs),
      values: Object.fromEntries(cells),
    },
    series,
    total: wire.seriesTotal,
    meta: toMeta(wire),
    from: (toInstant(wire.rangeStart) ?? 0) + earlierMs,
    to: (toInstant(wire.rangeEnd) ?? 0) + earlierMs,
  };
}

export function groupedQuery(asked: GroupedRequest) {
  const { window } = asked;
  return queryOptions({
    queryKey: ["grouped", asked] as const,
    queryFn: ({ signal }) => fetchGrouped(asked, signal),
    enabled: asked.metrics.length > 0,
    placeholderData: (previous, query) =>
      JSON.stringify(query?.queryKey[1].filters) === JSON.stringify(asked.filters) ? previous : undefined,
    structuralSharing: false,
    refetchInterval: window.live ? POLL_MAXIMUM_MS / 3 : false,
    staleTime: window.live ? 0 : Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  });
}
