/** What one may do with the window of a page; each action is a new address. */

import { fixedParams, liveParams, type Window, widened, zoomed } from "../model/window";
import { cameByZoom, navigate, type Place, withParams } from "./navigation";

export interface WindowActions {
  choose: (range: string) => void;
  toggleLive: () => void;
  zoom: (span: [number, number]) => void;
  zoomOut: () => void;
}

export interface Shown {
  place: Place;
  window: Window;
  /** What is on the screen now; pausing keeps it. */
  span: { from: number; to: number };
  defaultRange: string;
}

export function windowActions({ place, window, span, defaultRange }: Shown): WindowActions {
  const go = (params: Record<string, string | undefined>, isZoom = false) =>
    navigate(withParams(place, params), { zoomed: isZoom });
  return {
    choose: (range) => go(liveParams(range === defaultRange ? undefined : range)),
    toggleLive: () => {
      const range = new URLSearchParams(place.search).get("range") ?? undefined;
      go(window.live ? { ...fixedParams(span.from, span.to) } : liveParams(range));
    },
    zoom: ([from, to]) => {
      const inner = zoomed(from, to);
      go(fixedParams(inner.from, inner.to), true);
    },
    zoomOut: () => {
      if (cameByZoom()) history.back();
      else if (!window.live) {
        const outer = widened(span.from, span.to, Date.now());
        go(fixedParams(outer.from, outer.to));
      }
    },
  };
}
