/** States that hold or not, as lanes under the charts: one bar for each run. */

import { memo, useMemo } from "react";
import type { Catalog } from "../../api/fleet";
import { type Cursor, useCursor } from "../../chart/cursor";
import { rowAt } from "../../model/columns";
import { runsOfBit } from "../../model/runs";
import { formatClock, formatDuration } from "../../ui/times";
import type { LaneSpec } from "./spec";
import type { Timeline } from "./timeline";

interface LaneProps {
  label: string;
  token: string;
  runs: readonly (readonly [number, number])[];
  x: readonly [number, number];
}

function Lane({ label, token, runs, x }: LaneProps) {
  const share = (ms: number) => ((ms - x[0]) / (x[1] - x[0])) * 100;
  return (
    <div className="lane">
      {runs.map(([from, to]) => {
        const left = Math.max(0, share(from));
        const width = Math.min(100, share(to)) - left;
        if (width <= 0) return null;
        return (
          <i
            key={from}
            style={{ left: `${left}%`, width: `max(2px, ${width}%)`, background: `var(--${token})` }}
            title={`${label}, ${formatClock(from)} for ${formatDuration(to - from)}`}
          />
        );
      })}
    </div>
  );
}

/** The share of the window in which a state held, as words. */
function sayLanes(lanes: readonly LaneProps[], [from, to]: readonly [number, number]): string {
  const held = lanes.flatMap(({ label, runs }) => {
    const ms = runs.reduce((sum, [start, end]) => sum + Math.min(end, to) - Math.max(start, from), 0);
    return ms > 0 ? [`${label} ${Math.round((ms / (to - from)) * 100)} %`] : [];
  });
  return held.length === 0
    ? "No reason held the clocks in this window."
    : `${held.join(", ")} of the window.`;
}

export interface LanesProps {
  spec: LaneSpec;
  view: Timeline;
  catalog: Catalog | undefined;
  cursor: Cursor;
}

export const Lanes = memo(function Lanes({ spec, view, catalog, cursor }: LanesProps) {
  const at = useCursor(cursor);
  const cells = view.columns.values[spec.metric];
  const names = catalog?.get(spec.metric)?.values;
  const lanes = useMemo(
    () =>
      spec.lanes.map((lane) => ({
        ...lane,
        label: names?.[String(lane.bit)] ?? `bit ${lane.bit}`,
        runs: runsOfBit(view.columns.ts, cells ?? [], lane.bit, view.slotMs, view.x),
        x: view.x,
      })),
    [spec, names, view, cells],
  );
  if (cells === undefined || cells.every((value) => value === null)) return null;
  const row = at === null ? cells.length - 1 : rowAt(view.columns.ts, at, view.slotMs);
  const now = row === null ? null : (cells[row] ?? null);
  const words = sayLanes(lanes, view.x);
  return (
    <section className="theme-row lanes-row" aria-label={spec.title}>
      <div className="gutter">
        <h2>{spec.title}</h2>
        {lanes.map((lane) => (
          <div key={lane.bit} className="gutter-line">
            <i className="lane-key" style={{ background: `var(--${lane.token})` }} />
            <span title={lane.label}>{lane.label}</span>
            <b>{now === null ? "–" : (now & lane.bit) !== 0 ? "on" : "off"}</b>
          </div>
        ))}
      </div>
      <div className="theme-plot">
        <p className="sentence">{words}</p>
        <div className="lanes" role="img" aria-label={`${spec.title}. ${words}`}>
          {lanes.map((lane) => (
            <Lane key={lane.bit} {...lane} />
          ))}
        </div>
      </div>
    </section>
  );
});
