/** The way from three months down to the window that is shown; each level leads back to itself. */

import { useLayoutEffect, useRef } from "react";
import { Icon } from "../../ui/icon";
import { formatClock, formatDay, formatDuration } from "../../ui/times";
import type { View } from "../../ui/view";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MONTHS_MS = 90 * DAY_MS;

interface Level {
  label: string;
  from: number;
  to: number;
}

/** Levels wider than the window, widest first. */
function levelsAbove(span: { from: number; to: number }, now: number): Level[] {
  const day = Math.floor(span.from / DAY_MS) * DAY_MS;
  const hour = Math.floor(span.from / HOUR_MS) * HOUR_MS;
  const end = Math.max(now, span.to);
  const all: Level[] = [
    { label: "3 months", from: end - MONTHS_MS, to: end },
    {
      label: "7 days",
      from: Math.min(end, span.to + 3.5 * DAY_MS) - 7 * DAY_MS,
      to: Math.min(end, span.to + 3.5 * DAY_MS),
    },
    { label: formatDay(day), from: day, to: day + DAY_MS },
    {
      label: `${formatClock(hour).slice(0, 5)} – ${formatClock(hour + HOUR_MS).slice(0, 5)}`,
      from: hour,
      to: hour + HOUR_MS,
    },
  ];
  const length = span.to - span.from;
  return all.filter((level) => level.to - level.from > length * 1.5 && level.from <= span.from);
}

function nameOf({ from, to }: { from: number; to: number }): string {
  if (to - from > DAY_MS) return `${formatDay(from)} – ${formatDay(to)}`;
  const cut = to - from >= 600_000 ? 5 : 8;
  return `${formatClock(from).slice(0, cut)} – ${formatClock(to).slice(0, cut)}`;
}

export function ZoomLevels({ view, resolution }: { view: View; resolution: string }) {
  const levels = levelsAbove(view.span, view.now);
  const nav = useRef<HTMLElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: what is scrolled to changes with the number of levels
  useLayoutEffect(() => {
    if (nav.current !== null) nav.current.scrollLeft = nav.current.scrollWidth;
  }, [levels.length, resolution]);
  return (
    <nav ref={nav} className="zoom-levels" aria-label="Zoom">
      {levels.map((level) => (
        <span key={level.label}>
          <button type="button" onClick={() => view.actions.zoom([level.from, level.to])}>
            {level.label}
          </button>
          <Icon name="right" size={12} />
        </span>
      ))}
      <b aria-current="true" title={formatDuration(view.span.to - view.span.from)}>
        {nameOf(view.span)} <small>{resolution}</small>
      </b>
    </nav>
  );
}
