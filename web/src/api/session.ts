/** Sign in and out; the session is a cookie that scripts cannot read. */

import { queryOptions } from "@tanstack/react-query";
import { request } from "./client";
import type { WireSession } from "./wire";

export interface Session {
  name: string;
  tenant: string;
  role: string;
}

function toSession(wire: WireSession): Session {
  return { name: wire.name, tenant: wire.tenantId, role: wire.role };
}

/** Exchange a token for a session. Raises ApiError. */
export async function signIn(token: string): Promise<Session> {
  return toSession(await request<WireSession>("/v1/session", { method: "POST", body: { token } }));
}

export async function signOut(): Promise<void> {
  await request<unknown>("/v1/session", { method: "DELETE" });
}

async function fetchSession(signal: AbortSignal): Promise<Session> {
  return toSession(await request<WireSession>("/v1/session", { signal }));
}

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: ({ signal }) => fetchSession(signal),
  staleTime: 300_000,
});
