/** A button and what it opens below itself; Escape or a press elsewhere closes it. */

import { type ReactNode, useEffect, useId, useRef, useState } from "react";

export interface PopoverProps {
  label: ReactNode;
  /** Name for readers who do not see the label; the label itself where it is left out. */
  name?: string;
  className?: string;
  align?: "left" | "right";
  children: (close: () => void) => ReactNode;
}

function useDismiss(open: boolean, close: () => void) {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const pressed = (event: PointerEvent) => {
      if (event.target instanceof Node && host.current?.contains(event.target) === false) close();
    };
    const typed = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      close();
      host.current?.querySelector("button")?.focus();
    };
    addEventListener("pointerdown", pressed);
    addEventListener("keydown", typed, true);
    return () => {
      removeEventListener("pointerdown", pressed);
      removeEventListener("keydown", typed, true);
    };
  }, [open, close]);
  return host;
}

export function Popover({ label, name, className, align = "left", children }: PopoverProps) {
  const id = useId();
  const [open, setOpen] = useState(false);
  const [close] = useState(() => () => setOpen(false));
  const host = useDismiss(open, close);
  return (
    <div ref={host} className="popover-host">
      <button
        type="button"
        className={className ?? "control"}
        aria-label={name}
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => setOpen(!open)}
      >
        {label}
      </button>
      {open && (
        <div id={id} className={`popover ${align}`}>
          {children(close)}
        </div>
      )}
    </div>
  );
}
