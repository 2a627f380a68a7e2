/** GPUs × time as a strip of heat: one row a GPU, one column a window. */

import { type PointerEvent, useLayoutEffect, useMemo, useRef, useState } from "react";
import { forgetFrame, inNextFrame } from "../../chart/frame";
import { GUTTER_PX } from "../../chart/options";
import { colour, useThemeRevision } from "../../chart/theme";
import { useWidth } from "../../chart/time_axis";
import type { Cell } from "../../model/columns";
import { formatClock } from "../../ui/times";

export interface StripRow {
  key: string;
  host: string;
  name: string;
  values: readonly Cell[];
}

export interface StripProps {
  rows: readonly StripRow[];
  ts: readonly number[];
  slotMs: number;
  x: readonly [number, number];
  /** Step of the scale of heat for a value in a column; null where there is none. */
  stepOf: (value: Cell, column: number) => number | null;
  /** Row that holds back the others. */
  marked: string | null;
  say: (value: number) => string;
  label: string;
  onOpen: (row: StripRow, at: number) => void;
}

const HOST_GAP_PX = 5;
const HEIGHT_PX = 300;

interface Places {
  rowPx: number;
  height: number;
  tops: readonly number[];
  hosts: readonly { host: string; top: number; rows: number }[];
}

/** Where each row stands; hosts are set apart. */
function placeRows(rows: readonly StripRow[]): Places {
  const rowPx = Math.max(3, Math.min(14, Math.floor(HEIGHT_PX / Math.max(rows.length, 1))));
  const tops: number[] = [];
  const hosts: { host: string; top: number; rows: number }[] = [];
  let top = 0;
  for (const row of rows) {
    const last = hosts.at(-1);
    if (last === undefined || last.host !== row.host) {
      if (last !== undefined) top += HOST_GAP_PX;
      hosts.push({ host: row.host, top, rows: 0 });
    }
    const host = hosts.at(-1);
    if (host !== undefined) host.rows += 1;
    tops.push(top);
    top += rowPx;
  }
  return { rowPx, height: top, tops, hosts };
}

function paint(canvas: HTMLCanvasElement, props: StripProps, places: Places, width: number): void {
  const pen = canvas.getContext("2d");
  if (pen === null) return;
  const ratio = devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(places.height * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, places.height);
  const { rows, ts, slotMs, x, stepOf } = props;
  const at = (ms: number) => ((ms - x[0]) / (x[1] - x[0])) * width;
  const cellPx = Math.max(1, (slotMs / (x[1] - x[0])) * width);
  rows.forEach((row, index) => {
    const top = places.tops[index] ?? 0;
    ts.forEach((instant, column) => {
      const step = stepOf(row.values[column] ?? null, column);
      pen.fillStyle = step === null ? colour("surface-2") : colour(`h${step}`);
      pen.fillRect(at(instant), top, cellPx + 0.5, places.rowPx - 1);
    });
  });
}

interface Pointed {
  row: StripRow;
  at: number;
  value: Cell;
  left: number;
  top: number;
}

function usePointed(props: StripProps, places: Places, width: number) {
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const move = (event: PointerEvent) => {
    const box = event.currentTarget.getBoundingClientRect();
    const [left, top] = [event.clientX - box.left, event.clientY - box.top];
    const index = places.tops.findLastIndex((each) => each <= top);
    const row = props.rows[index];
    const at = props.x[0] + (left / width) * (props.x[1] - props.x[0]);
    const column = props.ts.findLastIndex((instant) => instant <= at);
    if (row === undefined || column < 0) return setPointed(null);
    setPointed({ row, at: props.ts[column] ?? at, value: row.values[column] ?? null, left, top });
  };
  return { pointed, move, leave: () => setPointed(null) };
}

export function Strip(props: StripProps) {
  const { rows, marked, say, label, onOpen } = props;
  const { host, width: outer } = useWidth();
  const width = Math.max(1, outer - GUTTER_PX.left - GUTTER_PX.right);
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useThemeRevision();
  const places = useMemo(() => placeRows(rows), [rows]);
  const { pointed, move, leave } = usePointed(props, places, width);
  const markedTop = places.tops[rows.findIndex((row) => row.key === marked)];
  // biome-ignore lint/correctness/useExhaustiveDependencies: the theme changes what colours are
  useLayoutEffect(() => {
    const element = canvas.current;
    if (element === null || outer === 0) return;
    inNextFrame(element, () => paint(element, props, places, width));
    return () => forgetFrame(element);
  }, [rows, props.stepOf, props.ts, props.x[0], props.x[1], places, width, theme]);
  return (
    <div className="strip-row">
      <div className="strip-hosts" style={{ height: places.height }}>
        {places.hosts.map((each) => (
          <span key={each.host} style={{ top: each.top }}>
            {each.host} <small>{each.rows}</small>
          </span>
        ))}
      </div>
      <div ref={host} className="strip">
        {/* biome-ignore lint/a11y/useKeyWithClickEvents: the list of stragglers leads to the same pages */}
        <div
          role="img"
          aria-label={label}
          className="strip-cells"
          style={{ height: places.height }}
          data-rows={rows.length}
          onPointerMove={move}
          onPointerLeave={leave}
          onClick={() => pointed !== null && onOpen(pointed.row, pointed.at)}
        >
          <canvas ref={canvas} aria-hidden="true" style={{ width, height: places.height }} />
          {markedTop !== undefined && (
            <i className="strip-mark" style={{ top: markedTop - 2, height: places.rowPx + 3 }} />
          )}
          {pointed !== null && (
            <div
              className="strip-card"
              style={{ left: Math.min(pointed.left + 12, width - 200), top: pointed.top + 12 }}
            >
              <b>{pointed.row.name}</b> {formatClock(pointed.at)}{" "}
              <b>{pointed.value === null ? "–" : say(pointed.value)}</b>
            </div>
          )}
        </div>
      </div>
    </div>
  );
}
