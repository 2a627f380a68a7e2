/** What the bar above a page says of its answers. */

import { ageNow, type Meta } from "../api/meta";
import { type Health, NO_HEALTH } from "../ui/top_bar";

export function healthOf(meta: Meta | undefined, now: number, staleMs: number): Health {
  if (meta === undefined) return { ...NO_HEALTH, staleMs };
  return {
    ageMs: ageNow(meta, now),
    staleMs,
    completeThrough: meta.completeThrough,
    coverageRatio: meta.coverage?.ratio ?? null,
  };
}
