/** Ask for the fleet, its GPUs and the catalogue. */

import { queryOptions } from "@tanstack/react-query";
import { request } from "./client";
import { type Meta, toInstant, toMeta } from "./meta";
import type {
  WireCatalog,
  WireFleet,
  WireGpu,
  WireGpuColumns,
  WireGpuNames,
  WireGpuPage,
  WireMetric,
} from "./wire";

export type Status = "reporting" | "silent" | "lost" | "unknown";

export type Verdict = "healthy" | "degraded" | "unavailable" | "unknown";

/** What a verdict rests on, the gravest first. */
export interface Evidence {
  rule: string;
  since: number | null;
  text: string;
}

/** GPUs by verdict, and how many GPUs each kind of evidence is of. */
export interface HealthCounts extends Record<Verdict, number> {
  reasons: Record<string, number>;
}

export interface Gpu {
  id: string;
  host: string;
  cluster: string;
  rack: string;
  /** Index on the host; null where it is not known. */
  index: number | null;
  product: string;
  job: string;
  team: string;
  model: string;
  status: Status;
  health: { verdict: Verdict; evidence: Evidence[] };
  lastSeen: number | null;
  values: Record<string, number | null>;
}

export interface GpuList {
  gpus: Gpu[];
  meta: Meta;
}

export interface Fleet {
  health: HealthCounts;
  counts: Record<Status, number>;
  total: number;
  hosts: number;
  clusters: number;
  powerWatts: number | null;
  utilizationRatio: number | null;
  hottest: WireFleet["hottest"];
  meta: Meta;
}

export type Catalog = ReadonlyMap<string, WireMetric>;

/** Which rows: names, several separated by commas. */
export interface Filters {
  cluster?: string;
  host?: string;
  gpu?: string;
  job?: string;
  team?: string;
  model?: string;
}

/** GPUs of a list that is asked for less often. */
const LARGE = 2000;
const FLEET_EVERY_MS = 2000;
const LIST_EVERY_MS = 5000;
const LARGE_LIST_EVERY_MS = 15_000;
const STATUSES: readonly string[] = ["reporting", "silent", "lost", "unknown"];

function toStatus(text: string): Status {
  return STATUSES.includes(text) ? (text as Status) : "unknown";
}

const VERDICTS: readonly string[] = ["healthy", "degraded", "unavailable", "unknown"];

function toHealth({ verdict, evidence }: WireGpu["health"]): Gpu["health"] {
  return {
    verdict: VERDICTS.includes(verdict) ? (verdict as Verdict) : "unknown",
    evidence: evidence.map(({ rule, since, text }) => ({ rule, since: toInstant(since), text })),
  };
}

function toGpu(wire: WireGpu): Gpu {
  return {
    id: wire.gpuId,
    host: wire.hostId,
    cluster: wire.clusterId,
    rack: wire.rack,
    index: wire.index,
    product: wire.gpuModel,
    job: wire.jobId,
    team: wire.ownerTeam,
    model: wire.modelId,
    status: toStatus(wire.status),
    health: toHealth(wire.health),
    lastSeen: toInstant(wire.lastSeen),
    values: wire.values,
  };
}

async function fetchFleet(signal: AbortSignal): Promise<Fleet> {
  const wire = await request<WireFleet>("/v1/fleet", { signal });
  const { total, ...counts } = wire.gpus;
  return {
    counts,
    health: wire.health,
    total,
    hosts: wire.hosts,
    clusters: wire.clusters,
    powerWatts: wire.powerWatts,
    utilizationRatio: wire.utilizationRatio,
    hottest: wire.hottest,
    meta: toMeta(wire),
  };
}

/** Who GPUs are, in the order of an answer. */
type Names = Pick<Gpu, "id" | "host" | "cluster" | "rack" | "index" | "product" | "job" | "team" | "model">;

/** By place, the names of its GPUs and what they are called by: what is known is not told again. */
const namesKept = new Map<string, { layout: string; names: readonly Names[] }>();
const NAMES_KEPT = 4;

function toNames(wire: WireGpuNames): Names[] {
  return wire.gpuId.map((id, at) => ({
    id,
    host: wire.hostId[at] ?? "",
    cluster: wire.clusterId[at] ?? "",
    rack: wire.rack[at] ?? "",
    index: wire.index[at] ?? null,
    product: wire.gpuModel[at] ?? "",
    job: wire.jobId[at] ?? "",
    team: wire.ownerTeam[at] ?? "",
    model: wire.modelId[at] ?? "",
  }));
}

function keepNames(cluster: string, layout: string, names: readonly Names[]): readonly Names[] {
  namesKept.delete(cluster);
  namesKept.set(cluster, { layout, names });
  for (const oldest of namesKept.keys()) {
    if (namesKept.size <= NAMES_KEPT) break;
    namesKept.delete(oldest);
  }
  return names;
}

const WELL: Pick<Gpu, "status" | "health"> = {
  status: "reporting",
  health: { verdict: "healthy", evidence: [] },
};

/** GPUs out of an answer in columns: whoever it does not note is well. */
export function toGpus(names: readonly Names[], wire: WireGpuColumns): Gpu[] {
  const newest = toInstant(wire.newest);
  const columns = Object.entries(wire.values);
  const noted = new Map(wire.notable.map((one) => [one.at, one]));
  return names.map((name, at) => {
    const behind = wire.behindMs[at] ?? null;
    const one = noted.get(at);
    const standing =
      one === undefined ? WELL : { status: toStatus(one.status), health: toHealth(one.health) };
    return {
      ...name,
      ...standing,
      lastSeen: newest === null || behind === null ? null : newest - behind,
      values: Object.fromEntries(columns.map(([metric, values]) => [metric, values[at] ?? null])),
    };
  });
}

async function fetchGpus(cluster: string, signal: AbortSignal): Promise<GpuList> {
  const known = namesKept.get(cluster);
  const params = { cluster, layout: known?.layout };
  const wire = await request<WireGpuColumns>("/v1/fleet/gpus", { params, signal });
  const names =
    wire.names === null ? (known?.names ?? []) : keepNames(cluster, wire.layout, toNames(wire.names));
  return { gpus: toGpus(names, wire), meta: toMeta(wire) };
}

async function fetchGpu(id: string, signal: AbortSignal): Promise<Gpu> {
  return toGpu(await request<WireGpu>(`/v1/gpus/${encodeURIComponent(id)}`, { signal }));
}

async function fetchHost(host: string, signal: AbortSignal): Promise<Gpu[]> {
  const page = await request<WireGpuPage>(`/v1/nodes/${encodeURIComponent(host)}/gpus`, { signal });
  return page.gpus.map(toGpu);
}

async function fetchCatalog(signal: AbortSignal): Promise<Catalog> {
  const wire = await request<WireCatalog>("/v1/catalog", { signal });
  return new Map(wire.metrics.map((metric) => [metric.name, metric]));
}

/** Unit of a metric; empty while the catalogue is not there. */
export function unitOf(catalog: Catalog | undefined, metric: string): string {
  return catalog?.get(metric)?.unit ?? "";
}

export const fleetQuery = queryOptions({
  queryKey: ["fleet"],
  queryFn: ({ signal }) => fetchFleet(signal),
  refetchInterval: FLEET_EVERY_MS,
});

/** GPUs in order of cluster, host and index; those of a cluster, or all. */
export function gpusQuery(cluster = "") {
  return queryOptions({
    queryKey: ["gpus", cluster],
    queryFn: ({ signal }) => fetchGpus(cluster, signal),
    structuralSharing: false,
    refetchInterval: (query) =>
      (query.state.data?.gpus.length ?? 0) > LARGE ? LARGE_LIST_EVERY_MS : LIST_EVERY_MS,
  });
}

/** The GPUs of one host, in the order of their index. */
export function hostQuery(host: string) {
  return queryOptions({
    queryKey: ["host", host],
    queryFn: ({ signal }) => fetchHost(host, signal),
    enabled: host !== "",
    refetchInterval: LIST_EVERY_MS,
  });
}

export const catalogQuery = queryOptions({
  queryKey: ["catalog"],
  queryFn: ({ signal }) => fetchCatalog(signal),
  staleTime: 600_000,
});

export function gpuQuery(id: string) {
  return queryOptions({
    queryKey: ["gpu", id],
    queryFn: ({ signal }) => fetchGpu(id, signal),
    refetchInterval: LIST_EVERY_MS,
  });
}
