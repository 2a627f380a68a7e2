/** The view of a page as its address says it: window, parameters, and what one may do with them. */

import { useMemo } from "react";
import { parseWindow, type Window } from "../model/window";
import { navigate, type Place, usePlace, withParams } from "./navigation";
import { useNow } from "./now";
import { type WindowActions, windowActions } from "./window_actions";

export type Changes = Record<string, string | undefined>;

export interface View {
  place: Place;
  params: URLSearchParams;
  window: Window;
  /** Present time by this machine's clock. */
  now: number;
  /** What is on the screen, half open. */
  span: { from: number; to: number };
  actions: WindowActions;
  /** Go to another address. */
  go: (to: string) => void;
  /** Change parameters of the address in place. */
  set: (changes: Changes) => void;
  defaultRange: string;
}

/** A sliding window ends at the last whole second of the platform's clock. */
function spanOf(window: Window, now: number): View["span"] {
  if (!window.live) return window;
  const to = Math.floor(now / 1000) * 1000;
  return { from: to - window.lengthMs, to };
}

/** The same view where the platform's clock is ahead of this machine's by `offsetMs`. */
export function withOffset(view: View, offsetMs: number): View {
  const { place, window, defaultRange } = view;
  const span = spanOf(window, view.now + offsetMs);
  return { ...view, span, actions: windowActions({ place, window, span, defaultRange }) };
}

export function useView(defaultRange: string): View {
  const place = usePlace();
  const now = useNow();
  const window = useMemo(() => parseWindow(place.search, defaultRange), [place.search, defaultRange]);
  const span = spanOf(window, now);
  return {
    place,
    params: useMemo(() => new URLSearchParams(place.search), [place.search]),
    window,
    now,
    span,
    actions: windowActions({ place, window, span, defaultRange }),
    go: navigate,
    set: (changes) => navigate(withParams(place, changes), { replace: true }),
    defaultRange,
  };
}

/** Read the time line as a table, or as charts again. */
export function toggleTable(view: View): void {
  view.set({ view: view.params.get("view") === "table" ? undefined : "table" });
}

/** Address of another page that keeps the window of this one. */
export function keepWindow(view: Pick<View, "params">, to: string, changes: Changes = {}): string {
  const [path = to, search = ""] = to.split("?");
  const kept: Changes = {};
  for (const name of ["range", "from", "to"]) kept[name] = view.params.get(name) ?? undefined;
  return withParams({ path, search }, { ...kept, ...changes });
}
