/** Ask for the highest or lowest of some place over a sliding window. */

import { queryOptions } from "@tanstack/react-query";
import { request } from "./client";
import type { Filters } from "./fleet";
import { type Meta, toMeta } from "./meta";
import type { WireTop } from "./wire";

export interface Ranked {
  key: string;
  value: number;
  gpu: string;
  host: string;
  cluster: string;
  job: string;
}

export interface Ranking {
  metric: string;
  unit: string;
  rows: Ranked[];
  meta: Meta;
}

export interface TopRequest extends Filters {
  metric: string;
  aggregate?: string;
  window: string;
  n: number;
  by: string;
  order?: "highest" | "lowest";
  /** Where the window ends; now where it is left out. */
  at?: number;
}

const EVERY_MS = 10_000;

async function fetchTop(asked: TopRequest, signal: AbortSignal): Promise<Ranking> {
  const wire = await request<WireTop>("/v1/top", { params: { ...asked }, signal });
  const rows = wire.rows.map((row) => ({
    key: [row.clusterId, row.hostId, row.gpuId, row.entityId, row.jobId, row.part, row.ownerTeam].join(" "),
    value: row.value,
    gpu: row.gpuId ?? "",
    host: row.hostId ?? "",
    cluster: row.clusterId ?? "",
    job: row.jobId ?? "",
  }));
  return { metric: wire.metric, unit: wire.unit, rows, meta: toMeta(wire) };
}

export function topQuery(asked: TopRequest) {
  return queryOptions({
    queryKey: ["top", asked],
    queryFn: ({ signal }) => fetchTop(asked, signal),
    placeholderData: (previous) => previous,
    refetchInterval: asked.at === undefined ? EVERY_MS : false,
  });
}
