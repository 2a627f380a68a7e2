/** The second that a page points at: at once on the screen, a moment later in the address. */

import { useEffect, useState } from "react";
import { type Cursor, createCursor } from "../chart/cursor";
import { formatInstant } from "../model/window";
import { navigate, withParams } from "../ui/navigation";
import { useSteady } from "../ui/steady";
import type { View } from "../ui/view";

const WRITE_AFTER_MS = 300;

function inAddress(view: View): number | null {
  const at = Date.parse(view.params.get("at") ?? "");
  return Number.isFinite(at) ? at : null;
}

function startedAt(at: number | null): Cursor {
  const scrub = createCursor();
  scrub.set(at);
  return scrub;
}

/** The second pointed at, null for the newest; whoever shows it listens to it. Pointing back pauses the page. */
export function useScrub(view: View): Cursor {
  const [scrub] = useState(() => startedAt(inAddress(view)));
  const write = useSteady(() => {
    const at = scrub.get();
    const place = { path: location.pathname, search: location.search.slice(1) };
    const text = at === null ? undefined : formatInstant(at);
    const pause = at !== null && view.window.live;
    const window = pause ? { from: formatInstant(view.span.from), to: formatInstant(view.span.to) } : {};
    navigate(withParams(place, { ...window, at: text }), { replace: true });
  });
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(write, WRITE_AFTER_MS);
    };
    const forget = scrub.subscribe(later);
    later();
    return () => {
      forget();
      clearTimeout(timer);
    };
  }, [scrub, write]);
  return scrub;
}

/** The whole second of an instant. */
export function secondAt(at: number | null): number | null {
  return at === null ? null : Math.floor(at / 1000) * 1000;
}
