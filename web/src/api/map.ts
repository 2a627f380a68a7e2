/** Ask for one byte of every GPU of some place at one second, and for which GPUs they are only when that changes. */

import { queryOptions } from "@tanstack/react-query";
import { request } from "./client";
import { toInstant } from "./meta";
import type { WireCell, WireMap } from "./wire";

export interface MapCell {
  id: string;
  cluster: string;
  rack: string;
  host: string;
  index: number | null;
}

export interface Frame {
  /** The same array for as long as the same GPUs are there. */
  cells: readonly MapCell[];
  /** Values in the metric's unit, in the order of the cells; null where there is none. */
  values: readonly (number | null)[];
  at: number;
}

export interface MapRequest {
  metric: string;
  /** The second of the past; null for the newest. */
  at: number | null;
  cluster?: string;
}

const LIVE_EVERY_MS = 1000;
const LAYOUTS_KEPT = 4;
const LEVELS = 254;

/** Layouts by name, newest last. */
const layouts = new Map<string, readonly MapCell[]>();

function toCell(wire: WireCell): MapCell {
  return { id: wire.gpuId, cluster: wire.clusterId, rack: wire.rack, host: wire.hostId, index: wire.index };
}

function keepLayout(name: string, cells: readonly MapCell[]): readonly MapCell[] {
  layouts.set(name, cells);
  for (const oldest of layouts.keys()) {
    if (layouts.size <= LAYOUTS_KEPT) break;
    layouts.delete(oldest);
  }
  return cells;
}

/** Values of a frame: 0 is none, 1 to 255 divide the range evenly. */
export function decodeFrame(frame: string, low: number, high: number): (number | null)[] {
  const bytes = atob(frame);
  const values = new Array<number | null>(bytes.length);
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes.charCodeAt(at);
    values[at] = byte === 0 ? null : low + ((byte - 1) / LEVELS) * (high - low);
  }
  return values;
}

async function fetchFrame(
  asked: MapRequest,
  known: string,
  signal: AbortSignal,
): Promise<Frame & { layout: string }> {
  const { metric, cluster } = asked;
  const params = { metric, cluster, at: asked.at ?? undefined, layout: layouts.has(known) ? known : "" };
  const wire = await request<WireMap>("/v1/fleet/map", { params, signal });
  const cells =
    wire.cells === null ? (layouts.get(wire.layout) ?? []) : keepLayout(wire.layout, wire.cells.map(toCell));
  return {
    layout: wire.layout,
    cells,
    values: decodeFrame(wire.frame, wire.low, wire.high),
    at: toInstant(wire.at) ?? 0,
  };
}

/** Which layout each place had last. */
const lastLayout = new Map<string, string>();

export function frameQuery(asked: MapRequest) {
  const { metric, at, cluster = "" } = asked;
  return queryOptions({
    queryKey: ["frame", metric, at, cluster] as const,
    queryFn: async ({ signal }) => {
      const frame = await fetchFrame(asked, lastLayout.get(cluster) ?? "", signal);
      lastLayout.set(cluster, frame.layout);
      return frame as Frame;
    },
    placeholderData: (previous, query) =>
      query?.queryKey[1] === metric && query.queryKey[3] === cluster ? previous : undefined,
    structuralSharing: false,
    refetchInterval: at === null ? LIVE_EVERY_MS : false,
    staleTime: at === null ? 0 : Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  });
}
