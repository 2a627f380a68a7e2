/** Draw one picture on a canvas. The only component that knows uPlot. */

import { useLayoutEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Span } from "./axis";
import type { Cursor } from "./cursor";
import { forgetFrame, inNextFrame } from "./frame";
import { type Picture, plotBounds, plotData, plotOptions } from "./options";
import { paintMarks } from "./paint";
import { colour, useThemeRevision } from "./theme";

const LEAST_DRAG_PX = 6;

export interface PlotProps {
  picture: Picture;
  height: number;
  /** What a reader who does not see the picture is told. */
  label: string;
  cursor: Cursor;
  /** Plots of one group share the line under the pointer. */
  group: string;
  onZoom: (span: Span) => void;
  onZoomOut: () => void;
}

function cursorOptions(group: string, props: () => PlotProps): uPlot.Cursor {
  return {
    y: false,
    drag: { x: true, y: false, setScale: false, dist: LEAST_DRAG_PX },
    points: {
      size: 7,
      width: 1.5,
      stroke: () => colour("surface"),
      fill: (u, index) => lineColour(u, index),
    },
    sync: { key: group, setSeries: false, scales: ["x", null] },
    bind: { dblclick: zoomOutOf(props) },
  };
}

/** A double click goes out one level; uPlot's own answer, to fit the data, is not wanted. */
function zoomOutOf(props: () => PlotProps): () => uPlot.Cursor.MouseListener {
  return () => () => {
    props().onZoomOut();
    return null;
  };
}

function lineColour(u: uPlot, index: number): string {
  const stroke = u.series[index]?.stroke;
  return typeof stroke === "function" ? String(stroke(u, index)) : "";
}

function pointed(u: uPlot): number | null {
  const { idx, left } = u.cursor;
  if (idx === null || idx === undefined || left === undefined || left < 0) return null;
  return Math.round(u.posToVal(left, "x"));
}

function selected(u: uPlot): Span | null {
  const { left, width } = u.select;
  if (width < LEAST_DRAG_PX) return null;
  const at = (px: number) => Math.round(u.posToVal(px, "x") / 1000) * 1000;
  return [at(left), at(left + width)];
}

function hooks(props: () => PlotProps): uPlot.Hooks.Arrays {
  return {
    draw: [(u) => paintMarks(u, props().picture)],
    setCursor: [(u) => props().cursor.set(pointed(u))],
    setSelect: [
      (u) => {
        const span = selected(u);
        if (span === null) return;
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        if (span[1] > span[0]) props().onZoom(span);
      },
    ],
  };
}

function create(host: HTMLElement, props: () => PlotProps): uPlot {
  const { picture, height, group } = props();
  const size = { width: Math.max(host.clientWidth, 80), height };
  const options = plotOptions(() => props().picture, size);
  return new uPlot(
    { ...options, cursor: cursorOptions(group, props), hooks: hooks(props) },
    plotData(picture),
    host,
  );
}

function redraw(plot: uPlot, picture: Picture): void {
  const [low, high] = plotBounds(picture);
  plot.batch(() => {
    plot.setData(plotData(picture), false);
    plot.setScale("x", { min: picture.x[0], max: picture.x[1] });
    plot.setScale("y", { min: low, max: high });
    plot.redraw(true, true);
  });
}

export function Plot(props: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  const theme = useThemeRevision();
  const shape = `${theme} ${props.height} ${props.group} ${JSON.stringify(props.picture.lines)}`;

  useLayoutEffect(() => {
    const isNew = latest.current.picture !== props.picture;
    latest.current = props;
    const drawn = plot.current;
    if (drawn !== null && isNew) inNextFrame(drawn, () => redraw(drawn, latest.current.picture));
  });

  // biome-ignore lint/correctness/useExhaustiveDependencies: shape stands for everything that needs a new plot
  useLayoutEffect(() => {
    const element = host.current;
    if (element === null) return;
    const made = create(element, () => latest.current);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      made.setSize({ width: Math.max(element.clientWidth, 80), height: latest.current.height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      forgetFrame(made);
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  return (
    <div
      ref={host}
      className="plot-canvas"
      role="img"
      aria-label={props.label}
      style={{ height: props.height }}
      data-points={props.picture.columns.ts.length}
      data-newest={props.picture.columns.ts.at(-1) ?? ""}
      data-gaps={props.picture.gaps.length}
    />
  );
}
