/** How a GPU stands, by shape, word and colour. */

import type { Status } from "../api/fleet";
import { StatusWord, type Tone } from "../ui/icon";

const TONES: Record<Status, Tone> = { reporting: "ok", silent: "warn", lost: "bad", unknown: "none" };
const WORDS: Record<Status, string> = {
  reporting: "Reporting",
  silent: "Silent",
  lost: "Lost",
  unknown: "Unknown",
};

/** Worst first. */
export const SEVERITY: Record<Status, number> = { lost: 0, silent: 1, unknown: 2, reporting: 3 };

export function toneOf(status: Status): Tone {
  return TONES[status];
}

export function wordOf(status: Status): string {
  return WORDS[status];
}

export function GpuStatus({ status }: { status: Status }) {
  return <StatusWord tone={TONES[status]} word={WORDS[status]} />;
}

/** Counts of what is not well, each by shape and word; quiet where all is. */
export function Troubles({ counts }: { counts: Record<Status, number> }) {
  const bad = (["lost", "silent", "unknown"] as const).filter((status) => counts[status] > 0);
  if (bad.length === 0) return <StatusWord tone="ok" word="All report" />;
  return (
    <span className="troubles">
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
