/** Copy what a panel shows: its address, the request behind it, or its rows. */

import { useState } from "react";
import { Icon } from "./icon";
import { Popover } from "./popover";

const COPIED_MS = 2000;

/** Browsers give the clipboard to secure pages alone. */
export function canCopy(): boolean {
  return "clipboard" in navigator;
}

/** Text on the clipboard, and which of several was copied last. */
export function useCopied() {
  const [copied, setCopied] = useState<string | null>(null);
  const copy = async (name: string, text: string) => {
    await navigator.clipboard.writeText(text);
    setCopied(name);
    setTimeout(() => setCopied(null), COPIED_MS);
  };
  return { copied, copy };
}

/** A request as a command line; the token is a variable of the shell, never a value. */
export function toCurl(path: string): string {
  const address = new URL(path, location.href).href;
  return `curl -H "Authorization: Bearer $SECONDSIGHT_TOKEN" '${address.replaceAll("'", "%27")}'`;
}

export interface Form {
  name: string;
  text: () => string;
}

export function CopyAs({ forms }: { forms: readonly Form[] }) {
  const { copied, copy } = useCopied();
  if (!canCopy()) return null;
  return (
    <Popover
      name="copy as"
      align="right"
      className="control quiet"
      label={
        <>
          <Icon name="copy" size={14} />
          <span aria-live="polite">{copied === null ? "Copy as" : "Copied"}</span>
        </>
      }
    >
      {(close) => (
        <div className="menu">
          {forms.map((form) => (
            <button
              key={form.name}
              type="button"
              onClick={() => {
                void copy(form.name, form.text());
                close();
              }}
            >
              {form.name}
            </button>
          ))}
        </div>
      )}
    </Popover>
  );
}
