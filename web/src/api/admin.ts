/** Ask who may read what, what was read, and what was refused. */

import { queryOptions } from "@tanstack/react-query";
import type { Ask } from "./client";
import { request } from "./client";
import type {
  WireAudit,
  WireGrants,
  WireLetterCounts,
  WireLetterPage,
  WireMaintenance,
  WireTenants,
  WireTokens,
} from "./wire";

const LIMIT = 1000;

function list<T>(key: string, path: string, params: NonNullable<Ask["params"]>) {
  return queryOptions({
    queryKey: ["admin", key, params],
    queryFn: ({ signal }) => request<T>(path, { params, signal }),
    staleTime: 5000,
  });
}

export const tenantsQuery = list<WireTenants>("tenants", "/v1/tenants", { limit: LIMIT });
export const grantsQuery = list<WireGrants>("grants", "/v1/grants", { limit: LIMIT });
export const tokensQuery = list<WireTokens>("tokens", "/v1/tokens", { limit: LIMIT });
export const maintenanceQuery = list<WireMaintenance>("maintenance", "/v1/maintenance", { limit: LIMIT });

export interface Bounds {
  from: string | number;
  to: string | number;
}

export function auditQuery(bounds: Bounds, outcome: string) {
  return list<WireAudit>("audit", "/v1/audit", { ...bounds, outcome, limit: LIMIT });
}

export function letterCountsQuery(bounds: Bounds) {
  return list<WireLetterCounts>("letter-counts", "/v1/deadletters/counts", { ...bounds });
}

export function lettersQuery(bounds: Bounds) {
  return list<WireLetterPage>("letters", "/v1/deadletters", { ...bounds, limit: LIMIT });
}
