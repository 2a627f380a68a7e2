/** Ask in words or in SQL. */

import { queryOptions } from "@tanstack/react-query";
import { request } from "./client";
import type { WireAsk, WireSqlResult, WireViews } from "./wire";

/** An answer to a question; the turns before give it its context. The same question in the same words asks once. */
export function askQuery(question: string, context: readonly string[]) {
  return queryOptions({
    queryKey: ["ask", question, context],
    queryFn: ({ signal }) =>
      request<WireAsk>("/v1/ask", {
        method: "POST",
        body: { question, context, timezone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC" },
        signal,
      }),
    enabled: question !== "",
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
  });
}

export function sqlQuery(sql: string) {
  return queryOptions({
    queryKey: ["sql", sql],
    queryFn: ({ signal }) => request<WireSqlResult>("/v1/sql", { method: "POST", body: { sql }, signal }),
    enabled: sql !== "",
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
  });
}

export const viewsQuery = queryOptions({
  queryKey: ["sql-views"],
  queryFn: ({ signal }) => request<WireViews>("/v1/sql/views", { signal }),
  staleTime: 600_000,
});
