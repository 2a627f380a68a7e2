/** What belongs on one chart of a time line, and how it is bounded. */

import { type Catalog, unitOf } from "../../api/fleet";
import type { YRange } from "../../chart/axis";
import type { Stroke } from "../../chart/options";

export interface RowLine {
  metric: string;
  label: string;
  /** Column of the data; the metric's name where it is left out. */
  column?: string;
  /** Unit of its figures where it is not the one of the catalogue, such as of a rate. */
  unit?: string;
  /** Head of its column in the table, where the label says too little or too much. */
  head?: string;
  stroke: Stroke;
  /** Drawn only: it has no line in the gutter and no column in the table. */
  isQuiet?: boolean;
  width?: number;
  dash?: number[];
  /** Column to fill to, as a band. */
  bandTo?: string;
}

export interface RowSpec {
  title: string;
  heightPx: number;
  y: YRange;
  lines: readonly RowLine[];
  area?: boolean;
  /** Metric whose newest value is the top of the axis. */
  ceiling?: string;
  /** Metric whose newest value is drawn as a limit, and what it is called. */
  limit?: { metric: string; label: string };
  /** Smallest move worth a word in the sentence above, in the metric's unit. */
  noise: number;
}

/** Bits of a bitmask, each drawn as a lane of the runs in which it was set. */
export interface LaneSpec {
  title: string;
  metric: string;
  /** What a bit means is in the catalogue. */
  lanes: readonly { bit: number; token: string }[];
}

/** Column that holds a line's data. */
export function columnOf(line: RowLine): string {
  return line.column ?? line.metric;
}

/** Unit of a line's figures. */
export function unitOfLine(line: RowLine, catalog: Catalog | undefined): string {
  return line.unit ?? unitOf(catalog, line.metric);
}

/** Every metric that some rows read, once each. */
export function metricsOf(specs: readonly RowSpec[], lanes: readonly LaneSpec[] = []): readonly string[] {
  const names = specs.flatMap((spec) => [
    ...spec.lines.map((line) => line.metric),
    ...(spec.ceiling === undefined ? [] : [spec.ceiling]),
    ...(spec.limit === undefined ? [] : [spec.limit.metric]),
  ]);
  return [...new Set([...names, ...lanes.map((lane) => lane.metric)])];
}
