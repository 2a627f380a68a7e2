/** Share the instant under the pointer among all plots and gutters of a page. */

import { useSyncExternalStore } from "react";

export interface Cursor {
  /** Instant under the pointer; null while it is on no plot. */
  get: () => number | null;
  set: (ms: number | null) => void;
  subscribe: (notify: () => void) => () => void;
}

export function createCursor(): Cursor {
  let at: number | null = null;
  const listeners = new Set<() => void>();
  return {
    get: () => at,
    set: (ms) => {
      if (ms === at) return;
      at = ms;
      for (const notify of listeners) notify();
    },
    subscribe: (notify) => {
      listeners.add(notify);
      return () => listeners.delete(notify);
    },
  };
}

export function useCursor(cursor: Cursor): number | null {
  return useSyncExternalStore(cursor.subscribe, cursor.get);
}
