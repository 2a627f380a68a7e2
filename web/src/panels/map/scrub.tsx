/** Move through the window second by second: a slider, ticks of events, play. */

import { useEffect, useRef, useState } from "react";
import type { Happening } from "../../api/events";
import type { Cell } from "../../model/columns";
import { Icon } from "../../ui/icon";
import { Segment } from "../../ui/segment";
import { formatClock } from "../../ui/times";
import { titleOf, toneOf } from "../event_words";

const SPEEDS = [1, 10, 60];
const STILL = "(prefers-reduced-motion: reduce)";

export interface ScrubProps {
  from: number;
  to: number;
  /** The second that is shown; null at the live end. */
  at: number | null;
  onAt: (at: number | null) => void;
  events: readonly Happening[];
  /** A line above the slider, and what it is. */
  spark: { ts: readonly number[]; values: readonly Cell[]; label: string } | null;
}

/** Advance while playing: often where motion is wanted, else once a second. */
function usePlay({ from, to, at, onAt }: ScrubProps, speed: number) {
  const [playing, setPlaying] = useState(false);
  const latest = useRef({ at, to, from });
  useEffect(() => {
    latest.current = { at, to, from };
  });
  useEffect(() => {
    if (!playing) return;
    const stepMs = speed >= 10 && !matchMedia(STILL).matches ? 250 : 1000;
    const timer = setInterval(() => {
      const now = latest.current;
      const next = (now.at ?? now.from) + Math.max(1000, Math.round((stepMs * speed) / 1000) * 1000);
      if (document.hidden) return;
      if (next >= now.to) setPlaying(false);
      onAt(next >= now.to ? null : next);
    }, stepMs);
    return () => clearInterval(timer);
  }, [playing, speed, onAt]);
  return { playing, toggle: () => setPlaying(!playing) };
}

function Spark({ spark, from, to }: Pick<ScrubProps, "spark" | "from" | "to">) {
  if (spark === null) return null;
  const known = spark.values.filter((value): value is number => value !== null);
  const low = Math.min(...known);
  const high = Math.max(...known, low + 1);
  const points = spark.ts.flatMap((ts, index) => {
    const value = spark.values[index];
    if (value === null || value === undefined) return [];
    return [
      `${(((ts - from) / (to - from)) * 1000).toFixed(1)},${(18 - ((value - low) / (high - low)) * 16).toFixed(1)}`,
    ];
  });
  return (
    <svg className="scrub-spark" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">
      <polyline
        points={points.join(" ")}
        fill="none"
        stroke="currentColor"
        vectorEffect="non-scaling-stroke"
      />
    </svg>
  );
}

export function Scrub(props: ScrubProps) {
  const { from, to, at, onAt, events, spark } = props;
  const [speed, setSpeed] = useState(10);
  const { playing, toggle } = usePlay(props, speed);
  const shown = at ?? to;
  const set = (ms: number) => onAt(ms >= to - 999 ? null : Math.max(from, ms));
  return (
    <div className="scrub">
      <button
        type="button"
        className="control icon-only"
        onClick={toggle}
        aria-label={playing ? "Stop" : "Play"}
      >
        <Icon name={playing ? "pause" : "play"} size={14} />
      </button>
      <time>{formatClock(from)}</time>
      <div className="scrub-track">
        {spark !== null && <span className="scrub-label">{spark.label}</span>}
        <Spark spark={spark} from={from} to={to} />
        <input
          type="range"
          min={from}
          max={to}
          step={1000}
          value={shown}
          aria-label="time of the map"
          aria-valuetext={at === null ? "live end" : formatClock(shown)}
          onChange={(event) => set(Number(event.target.value))}
          onKeyDown={(event) => {
            const step = { ArrowLeft: -60_000, ArrowRight: 60_000 }[event.key];
            if (!event.shiftKey || step === undefined) return;
            event.preventDefault();
            set(shown + step);
          }}
        />
        {events.map((event) => (
          <button
            key={event.key}
            type="button"
            className={`scrub-tick ${toneOf(event)}`}
            style={{ left: `${((event.at - from) / (to - from)) * 100}%` }}
            title={`${formatClock(event.at)} ${titleOf(event)}`}
            aria-label={`${formatClock(event.at)} ${titleOf(event)}`}
            tabIndex={-1}
            onClick={() => set(event.at)}
          />
        ))}
      </div>
      <time>{formatClock(to)}</time>
      <Segment
        label="speed of play"
        choices={SPEEDS.map((each) => ({ value: String(each), label: each === 1 ? "1 s" : `${each}×` }))}
        value={String(speed)}
        onChoose={(value) => setSpeed(Number(value))}
      />
    </div>
  );
}
