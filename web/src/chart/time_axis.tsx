/** Label the one time axis that all plots above it share, with the instant under the pointer on it. */

import { useCallback, useState } from "react";
import { type Span, timeTicks } from "./axis";
import { type Cursor, useCursor } from "./cursor";
import { GUTTER_PX } from "./options";

export interface TimeAxisProps {
  x: Span;
  cursor: Cursor;
  tick: (ms: number, stepMs: number) => string;
  clock: (ms: number) => string;
}

/** Below this width labels stand closer, so that an axis has more than one. */
const NARROW_PX = 240;
const NARROW_ROOM_PX = 42;

/** Width of the element that takes `host` as its ref, whenever that comes. */
export function useWidth() {
  const [width, setWidth] = useState(0);
  const host = useCallback((element: HTMLDivElement | null) => {
    if (element === null) return;
    const measure = () => setWidth(element.clientWidth);
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure(); // what depends on it is drawn in this frame, not in the next
    return () => observer.disconnect();
  }, []);
  return { host, width };
}

function Pointed({ x, cursor, clock, place }: TimeAxisProps & { place: (ms: number) => number }) {
  const at = useCursor(cursor);
  if (at === null || at < x[0] || at > x[1]) return null;
  return (
    <span className="time-axis-cursor" style={{ left: place(at) }}>
      {clock(at)}
    </span>
  );
}

export function TimeAxis(props: TimeAxisProps) {
  const { host, width } = useWidth();
  const inner = Math.max(width - GUTTER_PX.left - GUTTER_PX.right, 1);
  const place = (ms: number) => GUTTER_PX.left + ((ms - props.x[0]) / (props.x[1] - props.x[0])) * inner;
  const { stepMs, at } = timeTicks(props.x, inner, inner < NARROW_PX ? NARROW_ROOM_PX : undefined);
  const fits = (ms: number) => place(ms) > GUTTER_PX.left + 12 && place(ms) < width - 24;
  return (
    <div ref={host} className="time-axis" aria-hidden="true">
      {at.filter(fits).map((ms) => (
        <span key={ms} style={{ left: place(ms) }}>
          {props.tick(ms, stepMs)}
        </span>
      ))}
      <Pointed {...props} place={place} />
    </div>
  );
}
