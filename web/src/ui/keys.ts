/** Turn keys into actions, except while one types. */

import { useEffect, useRef } from "react";

/** Actions by the key's name in lower case: "l", "/", "escape". */
export type KeyMap = Record<string, () => void>;

/** True where letters belong to what has the focus: fields and lists to choose from, not sliders and boxes. */
function isTyping(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement) return !["range", "checkbox", "radio"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function hasModifier(event: KeyboardEvent): boolean {
  return event.ctrlKey || event.metaKey || event.altKey;
}

export function useKeys(keys: KeyMap): void {
  const latest = useRef(keys);
  useEffect(() => {
    latest.current = keys;
  });
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const action = latest.current[event.key.toLowerCase()];
      if (action === undefined || hasModifier(event) || event.defaultPrevented) return;
      if (isTyping(event.target) || document.querySelector("dialog[open]") !== null) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
