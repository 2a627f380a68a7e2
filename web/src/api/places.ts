/** Ask for clusters and hosts as they are now. */

import { queryOptions } from "@tanstack/react-query";
import { pagesOf } from "./client";
import type { HealthCounts, Status } from "./fleet";
import { type Meta, toMeta } from "./meta";
import type { WireCluster, WireClusterPage, WirePlace } from "./wire";

export interface PlaceSums {
  cluster: string;
  /** Empty for a cluster. */
  host: string;
  hosts: number;
  total: number;
  counts: Record<Status, number>;
  health: HealthCounts;
  powerWatts: number | null;
  utilizationRatio: number | null;
}

export interface Clusters {
  clusters: PlaceSums[];
  meta: Meta;
}

export interface ClusterNow {
  cluster: PlaceSums;
  hosts: PlaceSums[];
  meta: Meta;
}

const EVERY_MS = 5000;
/** Which hosts stand beside one changes seldom, and all of a cluster are many. */
const HOSTS_EVERY_MS = 60_000;
const PAGE = 1000;

function toSums(wire: WirePlace): PlaceSums {
  const { total, ...counts } = wire.gpus;
  return {
    cluster: wire.clusterId,
    host: wire.hostId ?? "",
    hosts: wire.hosts,
    total,
    counts,
    health: wire.health,
    powerWatts: wire.powerWatts,
    utilizationRatio: wire.utilizationRatio,
  };
}

async function fetchClusters(signal: AbortSignal): Promise<Clusters> {
  const pages = await pagesOf<WireClusterPage>("/v1/clusters", { limit: PAGE }, signal);
  return { clusters: pages.all.flatMap((page) => page.clusters.map(toSums)), meta: toMeta(pages.last) };
}

async function fetchCluster(id: string, signal: AbortSignal): Promise<ClusterNow> {
  const path = `/v1/clusters/${encodeURIComponent(id)}`;
  const pages = await pagesOf<WireCluster>(path, { limit: PAGE }, signal);
  return {
    cluster: toSums(pages.last.cluster),
    hosts: pages.all.flatMap((page) => page.hosts.map(toSums)),
    meta: toMeta(pages.last),
  };
}

export const clustersQuery = queryOptions({
  queryKey: ["clusters"],
  queryFn: ({ signal }) => fetchClusters(signal),
  refetchInterval: EVERY_MS,
});

export function clusterQuery(id: string) {
  return queryOptions({
    queryKey: ["cluster", id],
    queryFn: ({ signal }) => fetchCluster(id, signal),
    enabled: id !== "",
    refetchInterval: HOSTS_EVERY_MS,
    staleTime: HOSTS_EVERY_MS,
  });
}
