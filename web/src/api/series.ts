/** Ask for series as columns, and follow their newest end. */

import { type QueryClient, queryOptions } from "@tanstack/react-query";
import { type Cell, type Columns, EMPTY, mergeTail } from "../model/columns";
import { parseResolution, type Window } from "../model/window";
import { addressOf, request } from "./client";
import { type Meta, platformOffset, toMeta } from "./meta";
import type { WireColumns, WireSeries } from "./wire";

export interface Answer {
  columns: Columns;
  meta: Meta;
  /** Window of the answer, half open. */
  from: number;
  to: number;
}

const OVERLAP_MAXIMUM_MS = 60_000;
const POLL_MINIMUM_MS = 1000;
export const POLL_MAXIMUM_MS = 15_000;
const RETRY_MS = 5000;
/** Read this much more than is shown, so that the left edge never runs dry between two answers. */
const MARGIN_MS = 5000;

/** Name of a series' column: its metric, and its part where it has one. */
function nameOf(series: WireSeries): string {
  return series.part ? `${series.metric} ${series.part}` : series.metric;
}

/** Put columns with different timelines onto the union of them. */
export function align(parts: readonly Columns[]): Columns {
  const [first, ...others] = parts;
  if (first === undefined) return EMPTY;
  if (others.every((part) => sameTimeline(part.ts, first.ts))) {
    return { ts: first.ts, values: Object.assign({}, ...parts.map((part) => part.values)) };
  }
  const ts = [...new Set(parts.flatMap((part) => part.ts))].sort((a, b) => a - b);
  const values: Columns["values"] = {};
  for (const part of parts) {
    const at = new Map(part.ts.map((instant, index) => [instant, index]));
    for (const [name, cells] of Object.entries(part.values)) {
      values[name] = ts.map((instant) => cells[at.get(instant) ?? -1] ?? null);
    }
  }
  return { ts, values };
}

function sameTimeline(a: readonly number[], b: readonly number[]): boolean {
  return a === b || (a.length === b.length && a.every((instant, index) => instant === b[index]));
}

/** Columns of an answer. */
export function toColumns(answer: Pick<WireColumns, "ts" | "series">): Columns {
  const ts = answer.ts ?? [];
  const missing = () => new Array<Cell>(ts.length).fill(null);
  return {
    ts,
    values: Object.fromEntries(answer.series.map((series) => [nameOf(series), series.values ?? missing()])),
  };
}

/** From where on the next answer may differ from what is known. */
export function tailStart(known: Answer): number {
  const newest = known.columns.ts.at(-1) ?? known.from;
  const settled = Math.min(known.meta.completeThrough ?? newest, newest);
  return Math.max(settled, newest - OVERLAP_MAXIMUM_MS, known.from);
}

/** How long to wait until an answer can have changed. */
export function pollEvery(resolutionMs: number | null, failed: boolean): number {
  if (failed) return RETRY_MS;
  return Math.min(Math.max(resolutionMs ?? POLL_MINIMUM_MS, POLL_MINIMUM_MS), POLL_MAXIMUM_MS);
}

export interface TelemetryRequest {
  gpuId: string;
  metrics: readonly string[];
  window: Window;
  resolution: string;
}

function telemetryPath(gpuId: string): string {
  return `/v1/gpus/${encodeURIComponent(gpuId)}/telemetry`;
}

/** The request as an address, such as to copy it. */
export function telemetryAddress(
  asked: TelemetryRequest,
  span: { from: number; to: number },
  format: string,
): string {
  return addressOf(telemetryPath(asked.gpuId), {
    metrics: asked.metrics.join(","),
    from: new Date(span.from).toISOString(),
    to: new Date(span.to).toISOString(),
    resolution: asked.resolution,
    format,
  });
}

async function fetchTelemetry(asked: TelemetryRequest, from: number, to: number, signal: AbortSignal) {
  const wire = await request<WireColumns>(telemetryPath(asked.gpuId), {
    params: {
      metrics: asked.metrics.join(","),
      from,
      to,
      resolution: asked.resolution,
      format: "columns",
    },
    signal,
  });
  return { columns: toColumns(wire), meta: toMeta(wire), from, to };
}

/** Newest answer of a sliding window: all of it at first, then only its tail. */
async function followTelemetry(
  asked: TelemetryRequest,
  lengthMs: number,
  known: Answer | undefined,
  signal: AbortSignal,
): Promise<Answer> {
  const now = Date.now() + (known === undefined ? 0 : serverOffset(known));
  const to = Math.ceil(now / 1000) * 1000 + 1000;
  const from = to - lengthMs - MARGIN_MS;
  if (known === undefined || known.columns.ts.length === 0 || known.to < from) {
    return fetchTelemetry(asked, from, to, signal);
  }
  // Left to itself, so short a range would be read finer than what it is joined to.
  const resolution = known.meta.resolution || asked.resolution;
  const slotMs = parseResolution(resolution) ?? 1;
  const start = Math.floor(tailStart(known) / slotMs) * slotMs;
  const tail = await fetchTelemetry({ ...asked, resolution }, start, to, signal);
  const columns = mergeTail(known.columns, tail.columns, start, from);
  return { ...tail, columns, meta: keepStart(known.meta, tail.meta), from };
}

function serverOffset(answer: Answer): number {
  return platformOffset(answer.meta, answer.columns.ts.at(-1));
}

export function telemetryQuery(asked: TelemetryRequest, client: QueryClient) {
  const { gpuId, metrics, window, resolution } = asked;
  const queryKey = ["telemetry", gpuId, metrics, window, resolution] as const;
  return queryOptions<Answer, Error, Answer, typeof queryKey>({
    queryKey,
    queryFn: ({ signal }) =>
      window.live
        ? followTelemetry(asked, window.lengthMs, client.getQueryData<Answer>(queryKey), signal)
        : fetchTelemetry(asked, window.from, window.to, signal),
    placeholderData: (previous, query) => (query?.queryKey[1] === gpuId ? previous : undefined),
    structuralSharing: false,
    staleTime: window.live ? 0 : Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  });
}

/** What a tail says, and from where on something was expected as the first answer said it. */
export function keepStart(known: Meta, tail: Meta): Meta {
  return { ...tail, expectedFrom: known.expectedFrom ?? tail.expectedFrom };
}
