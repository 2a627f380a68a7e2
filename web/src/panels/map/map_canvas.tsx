/** The cells on a canvas, with a cursor for pointer and keys; names stand above it as buttons. */

import { type KeyboardEvent, type PointerEvent, useLayoutEffect, useRef, useState } from "react";
import { forgetFrame, inNextFrame } from "../../chart/frame";
import { useThemeRevision } from "../../chart/theme";
import type { Area, MapLayout } from "./layout";
import { gpuAt, gpuBeside, gpusIn } from "./layout";
import { type Painting, paintMap } from "./paint";

const BRUSH_PX = 5;

export interface MapCanvasProps {
  painting: Omit<Painting, "font">;
  /** What a reader who does not see the map is told. */
  label: string;
  cursor: number | null;
  onCursor: (at: number | null, by: "pointer" | "keys") => void;
  selected: ReadonlySet<number>;
  onSelect: (selected: ReadonlySet<number>) => void;
  onOpen: (at: number) => void;
  /** Keys besides the arrows, Enter and Escape. */
  onKey: (key: string) => boolean;
}

function usePainted(painting: Omit<Painting, "font">) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useThemeRevision();
  useLayoutEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    inNextFrame(element, () => paintMap(element, { ...painting, font }, theme));
    return () => forgetFrame(element);
  }, [painting, theme]);
  return canvas;
}

function between(a: Area, x: number, y: number): Area {
  return {
    x: Math.min(a.x, x),
    y: Math.min(a.y, y),
    width: Math.abs(x - a.x),
    height: Math.abs(y - a.y),
  };
}

function pointOf(event: PointerEvent): { x: number; y: number } {
  const box = event.currentTarget.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function useBrush(layout: MapLayout, props: MapCanvasProps) {
  const start = useRef<Area | null>(null);
  const [brush, setBrush] = useState<Area | null>(null);
  const down = (event: PointerEvent) => {
    if (event.button === 0) start.current = { ...pointOf(event), width: 0, height: 0 };
  };
  const move = (event: PointerEvent) => {
    const { x, y } = pointOf(event);
    if (start.current !== null && event.pointerType === "mouse") {
      const area = between(start.current, x, y);
      if (area.width > BRUSH_PX || area.height > BRUSH_PX) return setBrush(area);
    }
    props.onCursor(gpuAt(layout, x, y), "pointer");
  };
  const up = (event: PointerEvent) => {
    const { x, y } = pointOf(event);
    if (brush !== null) props.onSelect(new Set(gpusIn(layout, brush)));
    else if (start.current !== null) {
      const at = gpuAt(layout, x, y);
      if (at !== null) props.onOpen(at);
    }
    start.current = null;
    setBrush(null);
  };
  const leave = () => {
    start.current = null;
    setBrush(null);
    props.onCursor(null, "pointer");
  };
  return { brush, down, move, up, leave };
}

function toggled(selected: ReadonlySet<number>, at: number): ReadonlySet<number> {
  const next = new Set(selected);
  if (!next.delete(at)) next.add(at);
  return next;
}

/** Move the cursor by an arrow key; with Shift what it leaves and reaches is selected. */
function walk(layout: MapLayout, event: KeyboardEvent, props: MapCanvasProps): void {
  const { cursor, onCursor, onSelect, selected } = props;
  const next = cursor === null ? 0 : gpuBeside(layout, cursor, event.key);
  if (event.shiftKey) onSelect(new Set([...selected, cursor ?? 0, next]));
  onCursor(next, "keys");
}

/** What a key does on the map; false where it does nothing here. */
function pressed(layout: MapLayout, event: KeyboardEvent, props: MapCanvasProps): boolean {
  const { cursor, onOpen, onSelect, onKey, selected } = props;
  if (event.key.startsWith("Arrow")) walk(layout, event, props);
  else if (event.key === "Enter") onOpen(cursor ?? 0);
  else if (event.key.toLowerCase() === "c") onSelect(toggled(selected, cursor ?? 0));
  else if (event.key === "Escape" && selected.size > 0) onSelect(new Set());
  else return onKey(event.key);
  return true;
}

function Frame({ area, kind }: { area: Area; kind: string }) {
  const { x, y, width, height } = area;
  return (
    <i className={`map-${kind}`} style={{ left: x - 2, top: y - 2, width: width + 4, height: height + 4 }} />
  );
}

function cellArea(layout: MapLayout, at: number): Area {
  const { xs, ys, cellWidth: width, cellHeight: height } = layout;
  return { x: xs[at] ?? 0, y: ys[at] ?? 0, width, height };
}

export function MapCanvas(props: MapCanvasProps) {
  const { painting, label, cursor, selected } = props;
  const { layout } = painting;
  const canvas = usePainted(painting);
  const brush = useBrush(layout, props);
  return (
    <div
      className="map-canvas"
      role="application"
      aria-label={label}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: the arrows walk its cells
      tabIndex={0}
      style={{ height: layout.height }}
      data-cells={layout.xs.length}
      data-cell-px={layout.cellWidth}
      onFocus={(event) => {
        if (cursor === null && event.currentTarget.matches(":focus-visible")) props.onCursor(0, "keys");
      }}
      onKeyDown={(event) => {
        if (!pressed(layout, event, props)) return;
        event.preventDefault();
        event.stopPropagation();
      }}
      onPointerDown={brush.down}
      onPointerMove={brush.move}
      onPointerUp={brush.up}
      onPointerLeave={brush.leave}
    >
      <canvas ref={canvas} aria-hidden="true" style={{ width: layout.width, height: layout.height }} />
      {[...selected].map((at) => (
        <Frame key={at} area={cellArea(layout, at)} kind="selected" />
      ))}
      {cursor !== null && cursor < layout.xs.length && (
        <Frame area={cellArea(layout, cursor)} kind="cursor" />
      )}
      {brush.brush !== null && <Frame area={brush.brush} kind="brush" />}
    </div>
  );
}
