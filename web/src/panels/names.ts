/** GPUs by id, for whoever has to name one. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Gpu, gpusQuery } from "../api/fleet";

export function useNames(): ReadonlyMap<string, Gpu> {
  const { data } = useQuery(gpusQuery());
  return useMemo(() => new Map(data?.gpus.map((gpu) => [gpu.id, gpu])), [data]);
}
