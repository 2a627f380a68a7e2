/** How a GPU stands, by shape, word and colour. */

import type { Happening } from "../api/events";
import type { Status } from "../api/fleet";
import { StatusWord, type Tone } from "../ui/icon";
import { titleOf, toneOf as toneOfEvent } from "./event_words";

const TONES: Record<Status, Tone> = { reporting: "ok", silent: "warn", lost: "bad", unknown: "none" };
const WORDS: Record<Status, string> = {
  reporting: "Reporting",
  silent: "Silent",
  lost: "Lost",
  unknown: "Unknown",
};

const SEVERITY: Record<Status, number> = { lost: 0, silent: 1, unknown: 2, reporting: 3 };

/** How a GPU stands: what is found wrong with it where it reports, else that it does not. */
export function GpuStatus({ status, finding }: { status: Status; finding?: Happening | undefined }) {
  if (status === "reporting" && finding !== undefined) {
    return <StatusWord tone={toneOfEvent(finding)} word={titleOf(finding)} />;
  }
  return <StatusWord tone={TONES[status]} word={WORDS[status]} />;
}

/** How bad a GPU stands, 0 is worst. */
export function rankOf(status: Status, finding: Happening | undefined): number {
  return status === "reporting" && finding !== undefined ? 2.5 : SEVERITY[status];
}

export interface TroublesProps {
  counts: Record<Status, number>;
  /** GPUs that report and of which a finding lasts. */
  degraded: number;
}

/** How much is wrong, for sorting: one that is lost weighs more than any that are degraded. */
export function weightOf({ counts, degraded }: TroublesProps): number {
  return (counts.lost + counts.silent) * 100_000 + degraded;
}

/** Counts of what is not well, each by shape and word; quiet where all is. */
export function Troubles({ counts, degraded }: TroublesProps) {
  const bad = (["lost", "silent", "unknown"] as const).filter((status) => counts[status] > 0);
  if (bad.length === 0 && degraded === 0) return <StatusWord tone="ok" word="Healthy" />;
  return (
    <span className="troubles">
      {degraded > 0 && <StatusWord tone="warn" word={`${degraded.toLocaleString("en-US")} degraded`} />}
      {bad.map((status) => (
        <StatusWord
          key={status}
          tone={TONES[status]}
          word={`${counts[status].toLocaleString("en-US")} ${WORDS[status].toLowerCase()}`}
        />
      ))}
    </span>
  );
}
