/** Read colours of the design tokens as the canvas needs them, and tell when they change. */

import { useSyncExternalStore } from "react";

const resolved = new Map<string, string>();

/** The colour that a token has now. */
export function colour(token: string): string {
  const known = resolved.get(token);
  if (known !== undefined) return known;
  const probe = document.createElement("i");
  probe.style.color = `var(--${token})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  resolved.set(token, value);
  return value;
}

let revision = 0;
const listeners = new Set<() => void>();
let stop: (() => void) | null = null;

function changed(): void {
  revision += 1;
  resolved.clear();
  for (const notify of listeners) notify();
}

function watch(): () => void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(changed);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  system.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", changed);
  };
}

function subscribe(notify: () => void): () => void {
  listeners.add(notify);
  stop ??= watch();
  return () => {
    listeners.delete(notify);
    if (listeners.size > 0) return;
    stop?.();
    stop = null;
  };
}

/** A number that changes with the theme, so that what was drawn can be drawn again. */
export function useThemeRevision(): number {
  return useSyncExternalStore(subscribe, () => revision);
}
