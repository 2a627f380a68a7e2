/** What every answer says about itself: how fresh, how complete, from where. */

import type { WireCoverage, WireMeta } from "./wire";

export interface Meta {
  resolution: string;
  tier: string;
  /** Before this instant nothing was expected in the range; null where nothing was at all. */
  expectedFrom: number | null;
  /** Everything before this instant is complete; null where it is not known. */
  completeThrough: number | null;
  /** Age of the newest sample in scope when the answer was made. */
  freshnessMs: number | null;
  coverage: WireCoverage | null;
  partial: boolean;
  warnings: string[];
  /** When the answer came, by this machine's clock. */
  receivedAt: number;
}

/** Epoch milliseconds of a time as the api writes it. */
export function toInstant(time: string | null): number | null {
  if (time === null) return null;
  const ms = Date.parse(time);
  return Number.isFinite(ms) ? ms : null;
}

export function toMeta(wire: WireMeta): Meta {
  return {
    resolution: wire.effectiveResolution ?? "",
    tier: wire.tier ?? "",
    expectedFrom: toInstant(wire.expectedFrom ?? null),
    completeThrough: toInstant(wire.completeThrough),
    freshnessMs: wire.dataFreshnessMs,
    coverage: wire.coverage ?? null,
    partial: wire.partial ?? false,
    warnings: wire.warnings ?? [],
    receivedAt: Date.now(),
  };
}

/** Age of the newest sample now: what the answer said, and the time since. */
export function ageNow(meta: Meta, now: number): number | null {
  return meta.freshnessMs === null ? null : meta.freshnessMs + Math.max(0, now - meta.receivedAt);
}

/** The platform's clock minus this one, from an answer and its newest sample; small differences are travel time. */
export function platformOffset(meta: Meta, newestMs: number | undefined): number {
  if (newestMs === undefined || meta.freshnessMs === null) return 0;
  const offset = newestMs + meta.freshnessMs - meta.receivedAt;
  return Math.abs(offset) < 2000 ? 0 : offset;
}
