/** Ask for gaps with their reasons, the ledger, and the collectors. */

import { queryOptions } from "@tanstack/react-query";
import type { Window } from "../model/window";
import { request } from "./client";
import { boundsOf } from "./events";
import { toInstant } from "./meta";
import type { WireCollectorPage, WireGapPage, WireLedger, WireStory } from "./wire";

export interface Story {
  key: string;
  level: string;
  cluster: string;
  rack: string;
  host: string;
  /** Empty where more than one entity is missing. */
  entity: string;
  start: number;
  /** Null while nothing has come again. */
  end: number | null;
  reason: string;
  /** The reason is no finding. */
  isExpected: boolean;
  entities: number;
  hosts: number;
  missing: number;
}

export interface Stories {
  stories: Story[];
  total: number;
  missing: number;
  shed: number;
  reasons: Record<string, number>;
}

export interface GapsRequest {
  kind: string;
  cluster?: string;
  host?: string;
  reason?: string;
  window: Window;
  limit: number;
}

const EVERY_MS = 10_000;

function toStory(wire: WireStory): Story {
  const place = [
    wire.tenantId,
    wire.clusterId,
    wire.rack,
    wire.hostId,
    wire.entityId,
    wire.startTime,
    wire.reason,
  ];
  return {
    key: place.join("\n"),
    level: wire.level,
    cluster: wire.clusterId,
    rack: wire.rack ?? "",
    host: wire.hostId ?? "",
    entity: wire.entityId ?? "",
    start: toInstant(wire.startTime) ?? 0,
    end: toInstant(wire.endTime),
    reason: wire.reason,
    isExpected: wire.expected,
    entities: wire.entities,
    hosts: wire.hosts,
    missing: wire.expectedSamples,
  };
}

export function storiesQuery(asked: GapsRequest) {
  const { window, ...filters } = asked;
  return queryOptions({
    queryKey: ["stories", asked],
    queryFn: async ({ signal }): Promise<Stories> => {
      const params = { ...filters, ...boundsOf(window), stories: "true" };
      const wire = await request<WireGapPage>("/v1/telemetry/gaps", { params, signal });
      const { total, missing, shed, reasons } = wire;
      return { stories: (wire.stories ?? []).map(toStory), total, missing, shed, reasons };
    },
    placeholderData: (previous) => previous,
    refetchInterval: window.live ? EVERY_MS : false,
  });
}

export interface LedgerRequest {
  cluster?: string;
  host?: string;
  unbalanced?: string;
  window: Window;
  limit: number;
}

export function ledgerQuery(asked: LedgerRequest) {
  const { window, ...filters } = asked;
  return queryOptions({
    queryKey: ["ledger", asked],
    queryFn: ({ signal }) =>
      request<WireLedger>("/v1/ledger", { params: { ...filters, ...boundsOf(window) }, signal }),
    placeholderData: (previous) => previous,
    refetchInterval: window.live ? EVERY_MS : false,
  });
}

export const collectorsQuery = queryOptions({
  queryKey: ["collectors"],
  queryFn: ({ signal }) => request<WireCollectorPage>("/v1/collectors", { params: { limit: 5000 }, signal }),
  refetchInterval: EVERY_MS,
});
