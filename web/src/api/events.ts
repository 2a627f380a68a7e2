/** Ask for what happened: events, and facts that hold. */

import { queryOptions } from "@tanstack/react-query";
import type { Window } from "../model/window";
import { request } from "./client";
import type { Filters } from "./fleet";
import { type Meta, toInstant, toMeta } from "./meta";
import type { WireEvent, WireEventPage, WireFact, WireFactPage } from "./wire";

export interface Happening {
  key: string;
  metric: string;
  kind: string;
  cluster: string;
  host: string;
  /** Empty where it is about no GPU. */
  gpu: string;
  entity: string;
  part: string;
  job: string;
  at: number;
  /** Null while it lasts; the same as `at` of what took no time. */
  end: number | null;
  code: number;
  meaning: string;
  severity: string;
  attributes: Record<string, string>;
  source: string;
}

export interface Happenings {
  events: Happening[];
  total: number;
  meta: Meta;
}

export interface EventsRequest extends Filters {
  metric?: string;
  kind?: string;
  severity?: string;
  window: Window;
  limit: number;
}

const EVERY_MS = 5000;
/** A long list changes as seldom as a short one, and weighs more. */
const LONG_EVERY_MS = 15_000;
const LONG = 200;

function toHappening(wire: WireEvent): Happening {
  const at = toInstant(wire.time) ?? 0;
  return {
    key: [wire.metric, wire.tenantId, wire.entityId, wire.part, wire.time, wire.code, wire.collectorId].join(
      " ",
    ),
    metric: wire.metric,
    kind: wire.kind,
    cluster: wire.clusterId,
    host: wire.hostId,
    gpu: wire.gpuId ?? "",
    entity: wire.entityId,
    part: wire.part,
    job: wire.jobId,
    at,
    end: toInstant(wire.endTime),
    code: wire.code,
    meaning: wire.meaning ?? "",
    severity: wire.severity,
    attributes: wire.attributes,
    source: wire.source,
  };
}

/** Bounds of a window as the api takes them. */
export function boundsOf(window: Window): { from: string | number; to: string | number } {
  if (!window.live) return { from: window.from, to: window.to };
  return { from: `now-${Math.round(window.lengthMs / 1000)}s`, to: "now" };
}

async function fetchEvents(asked: EventsRequest, signal: AbortSignal): Promise<Happenings> {
  const { window, ...filters } = asked;
  const wire = await request<WireEventPage>("/v1/events", {
    params: { ...filters, ...boundsOf(window) },
    signal,
  });
  return { events: wire.events.map(toHappening), total: wire.total, meta: toMeta(wire) };
}

/** Events of some place, newest first. */
export function eventsQuery(asked: EventsRequest) {
  return queryOptions({
    queryKey: ["events", asked],
    queryFn: ({ signal }) => fetchEvents(asked, signal),
    placeholderData: (previous) => previous,
    refetchInterval: (query) => {
      if (!asked.window.live) return false;
      return (query.state.data?.events.length ?? 0) > LONG ? LONG_EVERY_MS : EVERY_MS;
    },
    staleTime: asked.window.live ? 0 : Number.POSITIVE_INFINITY,
  });
}

export interface Fact {
  metric: string;
  entity: string;
  host: string;
  at: number;
  attributes: Record<string, string>;
}

function toFact(wire: WireFact): Fact {
  return {
    metric: wire.metric,
    entity: wire.entityId,
    host: wire.hostId,
    at: toInstant(wire.time) ?? 0,
    attributes: wire.attributes,
  };
}

/** Facts about some place, newest first: driver, firmware, what a job was started with. */
export function factsQuery(filters: Filters & { metric?: string; limit: number }) {
  return queryOptions({
    queryKey: ["facts", filters],
    queryFn: async ({ signal }) => {
      const wire = await request<WireFactPage>("/v1/infos", {
        params: { ...filters, from: "now-30d" },
        signal,
      });
      return wire.facts.map(toFact);
    },
    staleTime: 60_000,
  });
}
