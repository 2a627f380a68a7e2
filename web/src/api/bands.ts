/** Ask for a few aggregates over all GPUs of some place, and follow their newest end. */

import { type QueryClient, queryOptions } from "@tanstack/react-query";
import { type Columns, mergeTail } from "../model/columns";
import { parseResolution, type Window } from "../model/window";
import { request } from "./client";
import type { Filters } from "./fleet";
import { toMeta } from "./meta";
import { type Answer, keepStart, POLL_MAXIMUM_MS } from "./series";
import type { WireColumns } from "./wire";

export type Band = "avg" | "min" | "max" | "p95";

export interface BandRequest {
  metrics: readonly string[];
  aggregates: readonly Band[];
  filters: Filters;
  window: Window;
  /** Read this much earlier than the window, to hold against it. */
  earlierMs?: number;
}

/** Name of a column of one aggregate of one metric. */
export function bandName(metric: string, aggregate: string): string {
  return `${metric} ${aggregate}`;
}

function toBands(answer: Pick<WireColumns, "ts" | "series">): Columns {
  const named = answer.series.map((one) => [bandName(one.metric, one.aggregate), one.values ?? []] as const);
  return { ts: answer.ts ?? [], values: Object.fromEntries(named) };
}

/** Seconds of a whole fleet tell no more than its half minutes, and cost far more. */
function bandResolution(lengthMs: number): string {
  return lengthMs <= 3_600_000 ? "30s" : "auto";
}

interface Asked extends BandRequest {
  from: number;
  to: number;
  resolution: string;
}

async function fetchBands(asked: Asked, signal: AbortSignal): Promise<Answer> {
  const { from, to, resolution } = asked;
  const wire = await request<WireColumns>("/v1/metrics/query", {
    params: {
      metrics: asked.metrics.join(","),
      ...asked.filters,
      from,
      to,
      resolution,
      aggregate: asked.aggregates.join(","),
      groupBy: "total",
      format: "columns",
    },
    signal,
  });
  return { columns: toBands(wire), meta: toMeta(wire), from, to };
}

/** Newest answer of a sliding window: all of it at first, then only the windows that can have changed. */
async function followBands(asked: Asked, known: Answer | undefined, signal: AbortSignal): Promise<Answer> {
  const slotMs = parseResolution(known?.meta.resolution ?? "");
  if (known === undefined || slotMs === null || known.columns.ts.length === 0) {
    return fetchBands(asked, signal);
  }
  const settled = Math.min(known.meta.completeThrough ?? known.from, known.to);
  const start = Math.floor(settled / slotMs - 1) * slotMs;
  if (start <= asked.from) return fetchBands(asked, signal);
  const tail = await fetchBands({ ...asked, from: start, resolution: known.meta.resolution }, signal);
  const keepFrom = Math.floor(asked.from / slotMs) * slotMs;
  const columns = mergeTail(known.columns, tail.columns, start, keepFrom);
  return { ...tail, columns, meta: keepStart(known.meta, tail.meta), from: asked.from };
}

/** The answer of an earlier window, with its times moved to those of the window that it is held against. */
function movedBy(answer: Answer, ms: number): Answer {
  const ts = answer.columns.ts.map((instant) => instant + ms);
  return { ...answer, columns: { ...answer.columns, ts }, from: answer.from + ms, to: answer.to + ms };
}

/** Some aggregates of several metrics over all GPUs of some place, in one request. */
export function bandsQuery(asked: BandRequest, client: QueryClient) {
  const { metrics, aggregates, filters, window, earlierMs = 0 } = asked;
  const queryKey = ["bands", metrics, aggregates, filters, window, earlierMs] as const;
  const isLive = window.live && earlierMs === 0;
  return queryOptions<Answer, Error, Answer, typeof queryKey>({
    queryKey,
    queryFn: async ({ signal }) => {
      const to = (window.live ? Date.now() : window.to) - earlierMs;
      const from = window.live ? to - window.lengthMs : window.from - earlierMs;
      const now = { ...asked, from, to, resolution: bandResolution(to - from) };
      const known = isLive ? client.getQueryData<Answer>(queryKey) : undefined;
      return movedBy(await followBands(now, known, signal), earlierMs);
    },
    placeholderData: (previous, query) =>
      JSON.stringify(query?.queryKey[3]) === JSON.stringify(filters) ? previous : undefined,
    structuralSharing: false,
    refetchInterval: isLive ? POLL_MAXIMUM_MS : window.live && 4 * POLL_MAXIMUM_MS,
    staleTime: isLive ? 0 : Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  });
}
