/** How GPUs are, by shape, word and colour: the verdict of the api, and what it rests on. */

import type { Gpu, HealthCounts, Verdict } from "../api/fleet";
import { StatusWord, type Tone } from "../ui/icon";
import { formatNumber } from "../ui/units";

const TONES: Record<Verdict, Tone> = { healthy: "ok", degraded: "warn", unavailable: "bad", unknown: "none" };
const WORDS: Record<Verdict, string> = {
  healthy: "Healthy",
  degraded: "Degraded",
  unavailable: "Unavailable",
  unknown: "Unknown",
};
const WORST_FIRST: readonly Verdict[] = ["unavailable", "degraded", "unknown", "healthy"];

export function toneOf(verdict: Verdict): Tone {
  return TONES[verdict];
}

/** Rules that make a GPU unavailable; all others make it degraded or unknown. */
const UNUSABLE = new Set(["no_telemetry", "lost", "memory_failed", "fabric_failed", "fatal_xid"]);
const UNKNOWING = new Set(["never_seen", "planned_work"]);

/** The most frequent reasons of a verdict: "131 slowed down, 38 link errors"; empty where none is told. */
export function sayReasons(reasons: Record<string, number>, of: "degraded" | "unavailable"): string {
  return Object.entries(reasons)
    .filter(([rule]) => UNUSABLE.has(rule) === (of === "unavailable") && !UNKNOWING.has(rule))
    .sort((a, b) => b[1] - a[1])
    .slice(0, 2)
    .map(([rule, count]) => `${formatNumber(count)} ${ruleWords(rule)}`)
    .join(", ");
}

/** "thermal_hardware" as words. */
export function ruleWords(rule: string): string {
  return rule.replaceAll("_", " ");
}

/** The verdict, with the gravest of what it rests on; all of it on hover. */
export function GpuStatus({ health }: { health: Gpu["health"] }) {
  const [first] = health.evidence;
  const why = first === undefined ? "" : ` · ${ruleWords(first.rule)}`;
  return (
    <span className="status-cell" title={health.evidence.map(({ text }) => text).join("\n") || undefined}>
      <StatusWord tone={TONES[health.verdict]} word={`${WORDS[health.verdict]}${why}`} />
    </span>
  );
}

/** How bad a GPU is, 0 is worst. */
export function rankOf({ verdict }: Gpu["health"]): number {
  return WORST_FIRST.indexOf(verdict);
}

/** How much is wrong, for sorting: one that is unavailable weighs more than any that are degraded. */
export function weightOf(health: HealthCounts): number {
  return health.unavailable * 100_000 + health.degraded;
}

/** Counts of what is not well, each by shape and word; quiet where all is. */
export function Troubles({ health }: { health: HealthCounts }) {
  const bad = (["unavailable", "degraded", "unknown"] as const).filter((verdict) => health[verdict] > 0);
  if (bad.length === 0) return <StatusWord tone="ok" word="Healthy" />;
  return (
    <span className="troubles">
      {bad.map((verdict) => (
        <StatusWord
          key={verdict}
          tone={TONES[verdict]}
          word={`${formatNumber(health[verdict])} ${WORDS[verdict].toLowerCase()}`}
        />
      ))}
    </span>
  );
}
