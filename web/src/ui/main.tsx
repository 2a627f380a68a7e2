/** The part of a page that changes from address to address; whoever comes by keys is led into it. */

import { type ReactNode, useEffect, useRef } from "react";

const ID = "content";

export function Main({ label, children }: { label?: string; children: ReactNode }) {
  return (
    <main id={ID} tabIndex={-1} aria-label={label}>
      {children}
    </main>
  );
}

export function focusMain(): void {
  document.getElementById(ID)?.focus({ preventScroll: true });
}

/** Keys go on inside the page that an address led to, and readers hear its name. */
export function useFocusOn(path: string): void {
  const last = useRef(path);
  useEffect(() => {
    if (last.current === path) return;
    last.current = path;
    focusMain();
  }, [path]);
}

/** The first thing that Tab reaches: past the rail, which is the same on every page. */
export function SkipLink() {
  return (
    <a
      href={`#${ID}`}
      className="skip control"
      onClick={(event) => {
        event.preventDefault();
        focusMain();
      }}
    >
      Skip to the page
    </a>
  );
}
