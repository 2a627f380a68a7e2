/** Say events in words. */

import type { Happening } from "../api/events";
import type { Tone } from "../ui/icon";

const TONES: Record<string, Tone> = { critical: "bad", error: "bad", warning: "warn", info: "none" };

export function toneOf(event: Pick<Happening, "severity">): Tone {
  return TONES[event.severity] ?? "none";
}

/** "gpu_link_finding" as words: "link finding". */
function wordsOf(metric: string): string {
  return metric.replace(/^(gpu|node|process_job|platform)_/, "").replaceAll("_", " ");
}

/** What happened, in a few words: "Xid 79", "NVLink replays", "lifecycle". */
export function titleOf(event: Pick<Happening, "metric" | "code" | "meaning" | "attributes">): string {
  if (event.metric === "gpu_xid") return `Xid ${event.code}`;
  if (event.meaning !== "") return event.meaning;
  const words = wordsOf(event.metric);
  const state = event.attributes["state"] ?? event.attributes["kind"] ?? "";
  return state === "" ? words : `${words}: ${state}`;
}

/** A message without the name of whom it befell, which stands beside it: "GPU GPU-0b60 of host cedar-0001: …". */
function withoutSubject(message: string, host: string): string {
  const subject = ` of host ${host}: `;
  const at = host === "" ? -1 : message.indexOf(subject);
  return at < 0 ? message : message.slice(at + subject.length);
}

/** What the event itself says, or what it carries. */
export function detailOf(event: Pick<Happening, "attributes" | "meaning" | "metric" | "host">): string {
  const { message, ...others } = event.attributes;
  if (message !== undefined) return withoutSubject(message, event.host);
  const told = Object.entries(others).map(([name, value]) => `${name} ${value}`);
  const meaning = event.metric === "gpu_xid" && event.meaning !== "" ? [event.meaning] : [];
  return [...meaning, ...told].join(", ");
}
