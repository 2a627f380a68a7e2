/** Ask for whatever has a text in its name. */

import { queryOptions } from "@tanstack/react-query";
import { request } from "./client";
import type { WireSearch } from "./wire";

export interface Match {
  kind: string;
  name: string;
  cluster: string;
  host: string;
}

const LIMIT = 12;

export function searchQuery(text: string) {
  return queryOptions({
    queryKey: ["search", text],
    queryFn: async ({ signal }) => {
      const wire = await request<WireSearch>("/v1/search", { params: { q: text, limit: LIMIT }, signal });
      return wire.matches.map((match): Match => {
        const { kind, name, clusterId, hostId } = match;
        return { kind, name, cluster: clusterId ?? "", host: hostId ?? "" };
      });
    },
    enabled: text !== "",
    placeholderData: (previous) => previous,
    staleTime: 10_000,
  });
}
