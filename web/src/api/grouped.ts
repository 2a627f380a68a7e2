/** Ask for series told apart by labels: one line a GPU, a host, a team. */

import { queryOptions } from "@tanstack/react-query";
import { type Columns, mergeTail } from "../model/columns";
import { parseResolution, type Window } from "../model/window";
import { addressOf, request } from "./client";
import { boundsOf } from "./events";
import type { Filters } from "./fleet";
import { type Meta, toInstant, toMeta } from "./meta";
import { keepStart, POLL_MAXIMUM_MS } from "./series";
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

async function fetchGrouped(
  asked: GroupedRequest,
  signal: AbortSignal,
  bounds = earlier(asked),
): Promise<Grouped> {
  const { earlierMs = 0 } = asked;
  const wire = await request<WireColumns>("/v1/metrics/query", {
    params: { ...parametersOf(asked, bounds), format: "columns" },
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

/** From where on the next answer of a sliding window may differ; null where it has to come whole. */
function tailFrom(known: Grouped, lengthMs: number): number | null {
  const slotMs = parseResolution(known.meta.resolution);
  const settled = known.meta.completeThrough;
  const isCut = known.total > known.series.length;
  if (slotMs === null || settled === null || isCut || known.columns.ts.length === 0) return null;
  const start = Math.floor(Math.min(settled, known.to) / slotMs - 1) * slotMs;
  return start > Math.max(known.from, Date.now() - lengthMs) ? start : null;
}

/** What was known with a newer end; series that have nothing left in the window go. */
export function withTail(known: Grouped, tail: Grouped, start: number, lengthMs: number): Grouped {
  const from = tail.to - lengthMs;
  const columns = mergeTail(known.columns, tail.columns, start, from);
  const names = new Set(known.series.map((one) => one.column));
  const all = [...known.series, ...tail.series.filter((one) => !names.has(one.column))];
  const series = all.filter((one) => columns.values[one.column]?.some((cell) => cell !== null) === true);
  const values = Object.fromEntries(series.map(({ column }) => [column, columns.values[column] ?? []]));
  return {
    columns: { ts: columns.ts, values },
    series,
    total: Math.max(series.length, tail.total),
    meta: keepStart(known.meta, tail.meta),
    from,
    to: tail.to,
  };
}

/** Newest answer of a sliding window: all of it at first, then only what can have changed. */
async function followGrouped(
  asked: GroupedRequest,
  known: Grouped | undefined,
  signal: AbortSignal,
): Promise<Grouped> {
  const { window, earlierMs = 0 } = asked;
  if (!window.live || earlierMs !== 0 || known === undefined) return fetchGrouped(asked, signal);
  const start = tailFrom(known, window.lengthMs);
  if (start === null) return fetchGrouped(asked, signal);
  const newest = { ...asked, resolution: known.meta.resolution };
  const tail = await fetchGrouped(newest, signal, { from: start, to: "now" });
  return withTail(known, tail, start, window.lengthMs);
}

export function groupedQuery(asked: GroupedRequest) {
  const { window } = asked;
  const queryKey = ["grouped", asked] as const;
  return queryOptions({
    queryKey,
    queryFn: ({ signal, client }) => followGrouped(asked, client.getQueryData<Grouped>(queryKey), signal),
    enabled: asked.metrics.length > 0,
    placeholderData: (previous, query) =>
      JSON.stringify(query?.queryKey[1].filters) === JSON.stringify(asked.filters) ? previous : undefined,
    structuralSharing: false,
    refetchInterval: window.live ? POLL_MAXIMUM_MS / 3 : false,
    staleTime: window.live ? 0 : Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  });
}
