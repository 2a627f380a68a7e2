/** Tell a phone from a desk. */

import { useSyncExternalStore } from "react";

const media = matchMedia("(max-width: 860px)");

function subscribe(notify: () => void): () => void {
  media.addEventListener("change", notify);
  return () => media.removeEventListener("change", notify);
}

export function useNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => media.matches);
}
