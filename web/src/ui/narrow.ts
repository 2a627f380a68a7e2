/** Tell a phone from a desk. */

import { useSyncExternalStore } from "react";

const QUERY = "(max-width: 860px)";

function subscribe(notify: () => void): () => void {
  const media = matchMedia(QUERY);
  media.addEventListener("change", notify);
  return () => media.removeEventListener("change", notify);
}

export function useNarrow(): boolean {
  return useSyncExternalStore(subscribe, () => matchMedia(QUERY).matches);
}
