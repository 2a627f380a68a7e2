/** The second that a page points at: at once on the screen, a moment later in the address. */

import { useEffect, useState } from "react";
import { formatInstant } from "../model/window";
import { navigate, withParams } from "../ui/navigation";
import { useSteady } from "../ui/steady";
import type { View } from "../ui/view";

const WRITE_AFTER_MS = 300;

function inAddress(view: View): number | null {
  const at = Date.parse(view.params.get("at") ?? "");
  return Number.isFinite(at) ? at : null;
}

/** The second pointed at, null for the newest, and the way to point at another; pointing back pauses the page. */
export function useScrub(view: View): { at: number | null; setAt: (at: number | null) => void } {
  const [at, setAt] = useState(() => inAddress(view));
  const write = useSteady((ms: number | null) => {
    const place = { path: location.pathname, search: location.search.slice(1) };
    const text = ms === null ? undefined : formatInstant(ms);
    const pause = ms !== null && view.window.live;
    const window = pause ? { from: formatInstant(view.span.from), to: formatInstant(view.span.to) } : {};
    navigate(withParams(place, { ...window, at: text }), { replace: true });
  });
  useEffect(() => {
    const timer = setTimeout(() => write(at), WRITE_AFTER_MS);
    return () => clearTimeout(timer);
  }, [at, write]);
  const point = useSteady((ms: number | null) => setAt(ms === null ? null : Math.floor(ms / 1000) * 1000));
  return { at, setAt: point };
}
