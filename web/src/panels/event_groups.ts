/** Put events that say the same of one host together, so that one fault of eight GPUs is one line. */

import type { Happening } from "../api/events";

export interface Alike {
  /** The newest of them. */
  event: Happening;
  count: number;
  /** How many GPUs they befell. */
  gpus: number;
}

/** Events by what happened to which host, in the order of their newest. */
export function groupAlike(events: readonly Happening[]): Alike[] {
  const groups = new Map<string, { event: Happening; count: number; who: Set<string> }>();
  for (const event of events) {
    const key = [event.metric, event.code, event.cluster, event.host].join("\n");
    const known = groups.get(key);
    if (known === undefined) groups.set(key, { event, count: 1, who: new Set([event.entity]) });
    else {
      known.count += 1;
      known.who.add(event.entity);
    }
  }
  return [...groups.values()].map(({ event, count, who }) => ({ event, count, gpus: who.size }));
}
