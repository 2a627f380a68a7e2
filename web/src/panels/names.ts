/** GPUs by id, for whoever has to name one. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Gpu, gpusQuery } from "../api/fleet";

/** `ready` is false while something is asked for that has to be seen first. */
export function useNames(ready = true): ReadonlyMap<string, Gpu> {
  const { data } = useQuery({ ...gpusQuery(), enabled: ready });
  return useMemo(() => new Map(data?.gpus.map((gpu) => [gpu.id, gpu])), [data]);
}
