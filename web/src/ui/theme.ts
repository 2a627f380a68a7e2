/** Follow the system's theme, or the one that was chosen. */

import { useState } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "secondsight.theme";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

function isTheme(text: string | null): text is Theme {
  return text === "light" || text === "dark" || text === "system";
}

function chosen(): Theme {
  const text = localStorage.getItem(KEY);
  return isTheme(text) ? text : "system";
}

/** Put a theme on the document; public/early.js does so with the chosen one before the pages are there. */
function applyTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
}

export function useTheme(): { theme: Theme; toggle: () => void } {
  const [theme, setTheme] = useState(chosen);
  const toggle = () => {
    const next = NEXT[theme];
    localStorage.setItem(KEY, next);
    applyTheme(next);
    setTheme(next);
  };
  return { theme, toggle };
}
