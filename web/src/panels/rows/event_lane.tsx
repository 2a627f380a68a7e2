/** Events as ticks above the charts of a time line; each leads to its second. */

import { memo, useMemo } from "react";
import type { Happening } from "../../api/events";
import { GUTTER_PX } from "../../chart/options";
import { useWidth } from "../../chart/time_axis";
import { Shape } from "../../ui/icon";
import { formatClock, formatDay } from "../../ui/times";
import { titleOf, toneOf } from "../event_words";
import { placeEvents } from "./place_events";

export interface EventLaneProps {
  events: readonly Happening[];
  x: readonly [number, number];
  onPick: (event: Happening) => void;
}

const DAY_MS = 86_400_000;
/** The least room in which the time under a label is whole. */
const LABEL_PX = 72;

export const EventLane = memo(function EventLane({ events, x, onPick }: EventLaneProps) {
  const { host, width } = useWidth();
  const inner = Math.max(width - GUTTER_PX.left - GUTTER_PX.right, 1);
  const marks = useMemo(() => placeEvents(events, x, inner), [events, x, inner]);
  const clock = (ms: number) => (x[1] - x[0] > DAY_MS ? formatDay(ms) : formatClock(ms));
  if (events.length === 0) return null;
  return (
    <section className="theme-row events-row" aria-label="Events in this window">
      <div className="gutter">
        <h2>Events</h2>
        <div className="gutter-line">
          in this window <b>{events.length}</b>
        </div>
      </div>
      <div ref={host} className="event-lane">
        {marks.map(({ event, left, more, labelPx, isFlipped }) => (
          <button
            key={event.key}
            type="button"
            className={`event-mark ${toneOf(event)}${isFlipped ? " flipped" : ""}`}
            style={{ left: left + GUTTER_PX.left, maxWidth: Math.max(labelPx, 12) }}
            title={`${clock(event.at)} ${titleOf(event)}${more > 0 ? `, and ${more} more beside it` : ""}`}
            onClick={() => onPick(event)}
          >
            <Shape tone={toneOf(event)} />
            <span className={labelPx >= LABEL_PX ? "event-label" : "hidden"}>
              {titleOf(event)}
              {more > 0 && ` +${more}`}
              <small>{clock(event.at)}</small>
            </span>
          </button>
        ))}
      </div>
    </section>
  );
});
