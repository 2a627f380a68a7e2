/** Keep the state of the view in the address. */

import { type MouseEvent, type ReactNode, useSyncExternalStore } from "react";

const CHANGED = "secondsight:navigated";

export interface Place {
  path: string;
  search: string;
}

function subscribe(notify: () => void): () => void {
  addEventListener("popstate", notify);
  addEventListener(CHANGED, notify);
  return () => {
    removeEventListener("popstate", notify);
    removeEventListener(CHANGED, notify);
  };
}

function href(): string {
  return location.pathname + location.search;
}

/** Go to an address of the pages. */
export function navigate(to: string, how: { replace?: boolean; zoomed?: boolean } = {}): void {
  if (to === href()) return;
  const state = { zoomed: how.zoomed ?? false };
  const isOther = to.split("?")[0] !== location.pathname;
  if (how.replace === true) history.replaceState(history.state, "", to);
  else history.pushState(state, "", to);
  dispatchEvent(new Event(CHANGED));
  if (isOther) scrollTo(0, 0);
}

/** True where the entry before this one is the window that was zoomed into. */
export function cameByZoom(): boolean {
  const state: unknown = history.state;
  return typeof state === "object" && state !== null && "zoomed" in state && state.zoomed === true;
}

/** Where one is; changes with every navigation. */
export function usePlace(): Place {
  const at = useSyncExternalStore(subscribe, href);
  const [path = "/", search = ""] = at.split("?");
  return { path, search };
}

/** The address with some parameters changed; undefined removes one. */
export function withParams(place: Place, changes: Record<string, string | undefined>): string {
  const params = new URLSearchParams(place.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") params.delete(name);
    else params.set(name, value);
  }
  const text = params.toString().replaceAll("%3A", ":");
  return text === "" ? place.path : `${place.path}?${text}`;
}

export interface LinkProps {
  to: string;
  children: ReactNode;
  className?: string | undefined;
  current?: boolean;
  label?: string;
  tabIndex?: number;
  /** Told before one goes, such as to close what holds the link. */
  onGo?: () => void;
}

function isPlainClick(event: MouseEvent): boolean {
  return event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
}

export function Link({ to, children, className, current, label, tabIndex, onGo }: LinkProps) {
  return (
    <a
      href={to}
      className={className}
      aria-label={label}
      aria-current={current === true ? "page" : undefined}
      tabIndex={tabIndex}
      onClick={(event) => {
        if (!isPlainClick(event)) return;
        event.preventDefault();
        onGo?.();
        navigate(to);
      }}
    >
      {children}
    </a>
  );
}
