/** Sign in and out; the session is a cookie that scripts cannot read. */

import { queryOptions } from "@tanstack/react-query";
import { addressOf, request } from "./client";
import type { WireSession, WireWays } from "./wire";

/** How one can sign in, and who has. */
export interface Ways {
  /** Address of who vouches for people; null where only tokens are taken. */
  issuer: string | null;
  session: Session | null;
}

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

async function fetchWays(signal: AbortSignal): Promise<Ways> {
  const { issuer, session } = await request<WireWays>("/v1/session/ways", { signal });
  return { issuer, session: session === null ? null : toSession(session) };
}

/** Asked before anything else: all other answers are refused to whom nobody knows. */
export const waysQuery = queryOptions({
  queryKey: ["session"],
  queryFn: ({ signal }) => fetchWays(signal),
  staleTime: 300_000,
});

/** Where a browser goes to sign in with the issuer, and comes back from to a path of these pages. */
export function issuerLogin(back: string): string {
  return addressOf("/v1/session/login", { back });
}
