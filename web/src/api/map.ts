/** Ask for one byte of every GPU of some place at one second, and for which GPUs they are only when that changes. */

import { queryOptions } from "@tanstack/react-query";
import { request } from "./client";
import { toInstant } from "./meta";
import type { WireCell, WireHostCells, WireMap } from "./wire";

export interface MapCell {
  id: string;
  cluster: string;
  rack: string;
  host: string;
  index: number | null;
}

/** Values of some GPUs, one byte each: 0 is none, 1 to 255 divide the range from `low` to `high` evenly. */
export interface ByteFrame {
  bytes: Uint8Array;
  /** In the metric's unit. */
  low: number;
  high: number;
}

/** How long before it was told a second was: by the platform's clock, which may differ from this one. */
export interface Lag {
  behindMs: number;
  toldAt: number;
}

export interface Frame extends ByteFrame {
  /** The same array for as long as the same GPUs are there; the bytes are in its order. */
  cells: readonly MapCell[];
  at: number;
  lag: Lag;
}

/** What an answer says of which GPUs it is about; no names stand for those of a layout that is known here. */
export type Placed = Pick<WireMap, "layout" | "cells"> & Partial<Pick<WireMap, "hosts">>;

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

function toCells({ clusterId: cluster, rack, hostId: host, gpuIds, indexes }: WireHostCells): MapCell[] {
  return gpuIds.map((id, at) => ({ id, cluster, rack, host, index: indexes[at] ?? null }));
}

function keepLayout(name: string, cells: readonly MapCell[]): readonly MapCell[] {
  layouts.set(name, cells);
  for (const oldest of layouts.keys()) {
    if (layouts.size <= LAYOUTS_KEPT) break;
    layouts.delete(oldest);
  }
  return cells;
}

/** The GPUs of a layout; null where they were never named. */
export function placed({ layout, cells, hosts = null }: Placed): readonly MapCell[] | null {
  const known = layouts.get(layout);
  if (known !== undefined) return known;
  const named = hosts?.flatMap(toCells) ?? cells?.map(toCell);
  return named === undefined ? null : keepLayout(layout, named);
}

export function decodeBytes(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export function toLag(behindMs: number): Lag {
  return { behindMs, toldAt: Date.now() };
}

/** How long ago a second was, now. */
export function behindNow({ behindMs, toldAt }: Lag, now: number): number {
  return behindMs + Math.max(0, now - toldAt);
}

/** What a byte of a frame stands for. */
export function valueOfByte({ low, high }: Pick<ByteFrame, "low" | "high">, byte: number): number | null {
  return byte === 0 ? null : low + ((byte - 1) / LEVELS) * (high - low);
}

async function fetchFrame(asked: MapRequest, signal: AbortSignal): Promise<Frame> {
  const { metric, cluster = "" } = asked;
  const layout = knownLayout(cluster);
  const params = { metric, cluster, at: asked.at ?? undefined, layout, naming: "hosts" };
  const wire = await request<WireMap>("/v1/fleet/map", { params, signal });
  lastLayout.set(cluster, wire.layout);
  const { low, high } = wire;
  return {
    cells: placed(wire) ?? [],
    bytes: decodeBytes(wire.frame),
    low,
    high,
    at: toInstant(wire.at) ?? 0,
    lag: toLag(wire.behindMs),
  };
}

/** Which layout each place had last. */
const lastLayout = new Map<string, string>();

/** Name of the newest layout of a place whose GPUs are known here; empty where there is none. */
export function knownLayout(cluster: string): string {
  const last = lastLayout.get(cluster) ?? "";
  return layouts.has(last) ? last : "";
}

export function frameQuery(asked: MapRequest) {
  const { metric, at, cluster = "" } = asked;
  return queryOptions({
    queryKey: ["frame", metric, at, cluster] as const,
    queryFn: ({ signal }) => fetchFrame(asked, signal),
    placeholderData: (previous, query) =>
      query?.queryKey[1] === metric && query.queryKey[3] === cluster ? previous : undefined,
    structuralSharing: false,
    refetchInterval: at === null ? LIVE_EVERY_MS : false,
    staleTime: at === null ? 0 : Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  });
}
