/** Sign in and out; the session is a cookie that scripts cannot read. */

import { queryOptions } from "@tanstack/react-query";
import { ApiError, request } from "./client";
import type { WireSession } from "./wire";

export interface Session {
  tenant: string;
  role: string;
}

function toSession(wire: WireSession | undefined): Session {
  return { tenant: wire?.tenantId ?? wire?.tenant ?? "", role: wire?.role ?? wire?.name ?? "" };
}

/** Exchange a token for a session. Raises ApiError. */
export async function signIn(token: string): Promise<Session> {
  return toSession(await request<WireSession>("/v1/session", { method: "POST", body: { token } }));
}

export async function signOut(): Promise<void> {
  await request<unknown>("/v1/session", { method: "DELETE" });
}

async function fetchSession(signal: AbortSignal): Promise<Session> {
  try {
    return toSession(await request<WireSession>("/v1/session", { signal }));
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 405))
      return toSession(undefined);
    throw error;
  }
}

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: ({ signal }) => fetchSession(signal),
  staleTime: 300_000,
});
