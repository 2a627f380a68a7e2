/** What was found wrong with GPUs and still lasts, one finding each. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type EventsRequest, eventsQuery, type Happening } from "../api/events";
import type { Filters } from "../api/fleet";
import type { Window } from "../model/window";

const HOUR: Window = { live: true, lengthMs: 3_600_000 };
export const FOUND = "warning,error,critical";
const LIMIT = 1000;
const EVERY_MS = 15_000;
const RANK: Record<string, number> = { warning: 1, error: 2, critical: 3 };

/** Findings of a window; whoever asks for the same of the same window shares one request. */
export function findingsIn(window: Window, filters: Filters = {}): EventsRequest {
  return { ...filters, severity: FOUND, window, limit: LIMIT };
}

/** The gravest finding by GPU that lasts. */
export type Lasting = ReadonlyMap<string, Happening>;

/** True where an event began before an instant and had not ended then; null stands for the present. */
function holds(event: Happening, at: number | null): boolean {
  if (at === null) return event.end === null;
  return event.at <= at && (event.end === null || event.end > at);
}

/** The gravest finding by GPU that lasts at an instant. */
function lastingByGpu(events: readonly Happening[], at: number | null): Lasting {
  const found = new Map<string, Happening>();
  for (const event of events) {
    if (event.gpu === "" || !holds(event, at)) continue;
    const known = found.get(event.gpu);
    if (known === undefined || (RANK[event.severity] ?? 0) > (RANK[known.severity] ?? 0)) {
      found.set(event.gpu, event);
    }
  }
  return found;
}

/** Findings of the last hour about some place, and which of them last, or lasted at a second of the past. */
export function useFindings(filters: Filters, at: number | null = null, ready = true) {
  const query = useQuery({
    ...eventsQuery(findingsIn(HOUR, filters)),
    enabled: ready,
    refetchInterval: EVERY_MS,
  });
  const events = query.data?.events;
  const lasting = useMemo(() => lastingByGpu(events ?? [], at), [events, at]);
  return { query, lasting };
}
