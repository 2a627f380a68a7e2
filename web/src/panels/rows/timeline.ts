/** What all charts of a time line share: the data, its gaps, its units. */

import type { Catalog } from "../../api/fleet";
import type { Meta } from "../../api/meta";
import type { Picture } from "../../chart/options";
import { sentence } from "../../chart/sentence";
import { breakAtGaps, type Cell, type Columns, findGaps, type Gap, newest } from "../../model/columns";
import { parseResolution } from "../../model/window";
import { formatClock, formatDuration } from "../../ui/times";
import { formatTicks, formatValue } from "../../ui/units";
import { columnOf, type RowLine, type RowSpec, unitOfLine } from "./spec";

export interface Timeline {
  columns: Columns;
  /** The same with an empty row in each gap, for drawing. */
  broken: Columns;
  gaps: readonly Gap[];
  slotMs: number;
  x: [number, number];
  completeThrough: number | null;
  /** The newest sample, where it is older than it should be. */
  staleSince: number | null;
}

/** Columns of an answer and what they are worth; answers of the api fit. */
export interface Drawn {
  columns: Columns;
  meta: Meta;
  /** Start of what was asked. */
  from: number;
}

const LIVE_EDGE_MS = 1000;

/** Gaps that overlap what is on the screen. */
function gapsInside(gaps: readonly Gap[], [from, to]: [number, number]): Gap[] {
  return gaps.filter((gap) => gap.end > from && gap.start < to);
}

export function toTimeline(answer: Drawn, span: { from: number; to: number }, isStale: boolean): Timeline {
  const slotMs = parseResolution(answer.meta.resolution) ?? LIVE_EDGE_MS;
  const x: [number, number] = [span.from, span.to];
  const gaps = findGaps(answer.columns.ts, slotMs, Math.max(answer.from, answer.meta.expectedFrom ?? 0));
  return {
    columns: answer.columns,
    broken: breakAtGaps(answer.columns, gaps),
    gaps: gapsInside(gaps, x),
    slotMs,
    x,
    completeThrough: answer.meta.completeThrough,
    staleSince: isStale ? (answer.columns.ts.at(-1) ?? null) : null,
  };
}

/** True where at least one line of a row has a value. */
export function hasData(spec: RowSpec, columns: Columns): boolean {
  return spec.lines.some((line) => columns.values[columnOf(line)]?.some((value) => value !== null) ?? false);
}

function newestOf(columns: Columns, metric: string | undefined): Cell {
  return metric === undefined ? null : newest(columns.values[metric]);
}

/** Lines of a row that were reported at least once. */
function reportedLines(spec: RowSpec, columns: Columns): readonly RowLine[] {
  return spec.lines.filter((line) => newest(columns.values[columnOf(line)]) !== null);
}

/** Lines of a row that are named: in the gutter, and as columns of the table. */
export function namedLines(spec: RowSpec, columns: Columns): readonly RowLine[] {
  return reportedLines(spec, columns).filter((line) => line.isQuiet !== true);
}

export function toPicture(spec: RowSpec, view: Timeline, catalog: Catalog | undefined): Picture {
  const [first] = spec.lines;
  const metric = first?.metric ?? "";
  const unit = first === undefined ? "" : unitOfLine(first, catalog);
  const ceiling = newestOf(view.columns, spec.ceiling);
  const limit = newestOf(view.columns, spec.limit?.metric);
  return {
    columns: view.broken,
    lines: reportedLines(spec, view.columns).map((line) => ({
      column: columnOf(line),
      stroke: line.stroke,
      area: spec.area ?? false,
      ...(line.width === undefined ? {} : { width: line.width }),
      ...(line.dash === undefined ? {} : { dash: line.dash }),
      ...(line.bandTo === undefined ? {} : { bandTo: line.bandTo }),
    })),
    x: view.x,
    y: ceiling === null ? spec.y : { kind: "fixed", high: ceiling },
    hold: limit === null ? [] : [limit],
    gaps: view.gaps,
    completeThrough: view.completeThrough,
    staleSince: view.staleSince,
    limit,
    ticks: (values) => formatTicks(values, metric, unit),
  };
}

/** The sentence above a chart, about its first line that was reported. */
export function toSentence(spec: RowSpec, view: Timeline, catalog: Catalog | undefined): string {
  const line = reportedLines(spec, view.columns)[0] ?? spec.lines[0];
  if (line === undefined) return "";
  const unit = unitOfLine(line, catalog);
  const facts = {
    label: line.label,
    ts: view.broken.ts,
    values: view.broken.values[columnOf(line)] ?? [],
    slotMs: view.slotMs,
    noise: spec.noise,
  };
  return sentence(facts, {
    value: (value) => formatValue(value, line.metric, unit),
    clock: formatClock,
    duration: (ms) => formatDuration(ms).replace(/\.0 s$/, " s"),
  });
}
