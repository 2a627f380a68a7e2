/** Turn what a plot shall show into uPlot's options and data. */

import type uPlot from "uplot";
import type { Cell, Columns, Gap } from "../model/columns";
import { extent, type Span, timeTicks, type YRange, yBounds, yTicks } from "./axis";
import { colour } from "./theme";

/** Token of a line's colour; the ghost is what it is held against. */
export type Stroke = "s1" | "s2" | "s3" | "s4" | "s5" | "ghost";

export interface Line {
  /** Column of `Columns.values`. */
  column: string;
  stroke: Stroke;
  width?: number;
  dash?: number[];
  /** Fill down to zero. */
  area?: boolean;
  /** Column to fill to, as a band. */
  bandTo?: string;
}

export interface Picture {
  columns: Columns;
  lines: readonly Line[];
  x: Span;
  y: YRange;
  /** Values besides the data that the vertical axis has to hold. */
  hold: readonly number[];
  gaps: readonly Gap[];
  completeThrough: number | null;
  staleSince: number | null;
  /** Value of a limit line. */
  limit: number | null;
  ticks: (values: readonly number[]) => string[];
}

export const GUTTER_PX = { left: 44, right: 8, top: 6, bottom: 6 } as const;

/** Columns in the order of the lines, as uPlot takes them. */
export function plotData(picture: Picture): uPlot.AlignedData {
  const { ts, values } = picture.columns;
  const missing = () => new Array<Cell>(ts.length).fill(null);
  return [ts, ...picture.lines.map((line) => values[line.column] ?? missing())];
}

/** Bounds of the vertical axis for what is in the picture. */
export function plotBounds(picture: Picture): Span {
  const drawn = picture.lines.map((line) => picture.columns.values[line.column] ?? []);
  return yBounds(picture.y, extent([...drawn, [...picture.hold]]));
}

function series(line: Line): uPlot.Series {
  const options: uPlot.Series = {
    stroke: () => colour(line.stroke),
    width: line.width ?? 1.25,
    spanGaps: false,
    points: { show: (u, index) => isSparse(u, index) },
  };
  if (line.dash !== undefined) options.dash = line.dash;
  if (line.area === true) options.fill = () => colour("s1-band");
  return options;
}

/** Points are drawn only where there are so few that a line would not show. */
function isSparse(u: uPlot, index: number): boolean {
  const cells = u.data[index] ?? [];
  return cells.length > 0 && cells.length < 4;
}

function bands(lines: readonly Line[]): uPlot.Band[] {
  return lines.flatMap((line, index) => {
    const other = lines.findIndex((candidate) => candidate.column === line.bandTo);
    if (other < 0) return [];
    const band: uPlot.Band = { series: [index + 1, other + 1], fill: () => colour("s1-band") };
    return [band];
  });
}

function axes(current: () => Picture): uPlot.Axis[] {
  const grid = { stroke: () => colour("grid"), width: 1 };
  return [
    {
      size: 0,
      grid,
      ticks: { show: false },
      splits: (u) => timeTicks(current().x, u.bbox.width / devicePixelRatio).at,
      values: (_, splits) => splits.map(() => ""),
    },
    {
      size: GUTTER_PX.left,
      gap: 6,
      grid,
      ticks: { show: false },
      stroke: () => colour("text-3"),
      font: `11px ${getComputedStyle(document.body).fontFamily}`,
      splits: (u) => yTicks(plotBounds(current()), u.bbox.height / devicePixelRatio),
      values: (_, splits) => current().ticks(splits),
    },
  ];
}

/** Options of one plot; everything that changes with time is read through `current`. */
export function plotOptions(current: () => Picture, size: { width: number; height: number }): uPlot.Options {
  const { lines } = current();
  return {
    ...size,
    ms: 1,
    padding: [GUTTER_PX.top, GUTTER_PX.right, GUTTER_PX.bottom, 0],
    legend: { show: false },
    scales: {
      x: { time: true, auto: false, range: () => current().x },
      y: { auto: false, range: () => plotBounds(current()) },
    },
    series: [{}, ...lines.map(series)],
    bands: bands(lines),
    axes: axes(current),
  };
}
