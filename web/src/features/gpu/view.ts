/** What all charts of a GPU share: the data, its gaps, its units. */

import { type Catalog, unitOf } from "../../api/fleet";
import type { Answer } from "../../api/series";
import type { Picture } from "../../chart/options";
import { sentence } from "../../chart/sentence";
import { breakAtGaps, type Cell, type Columns, findGaps, type Gap, newest } from "../../model/columns";
import { parseResolution } from "../../model/window";
import { formatClock, formatDuration } from "../../ui/times";
import { formatTicks, formatValue } from "../../ui/units";
import type { Theme } from "./themes";

export interface View {
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

const LIVE_EDGE_MS = 1000;

/** Gaps that overlap what is on the screen. */
function gapsInside(gaps: readonly Gap[], [from, to]: [number, number]): Gap[] {
  return gaps.filter((gap) => gap.end > from && gap.start < to);
}

export function toView(answer: Answer, span: { from: number; to: number }, isStale: boolean): View {
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

/** True where at least one line of a theme has a value. */
export function hasData(theme: Theme, columns: Columns): boolean {
  return theme.lines.some((line) => columns.values[line.metric]?.some((value) => value !== null) ?? false);
}

function newestOf(columns: Columns, metric: string | undefined): Cell {
  return metric === undefined ? null : newest(columns.values[metric]);
}

/** Lines of a theme that were reported at least once. */
export function reportedLines(theme: Theme, columns: Columns): Theme["lines"] {
  return theme.lines.filter((line) => newest(columns.values[line.metric]) !== null);
}

export function toPicture(theme: Theme, view: View, catalog: Catalog | undefined): Picture {
  const [first] = theme.lines;
  const metric = first?.metric ?? "";
  const unit = unitOf(catalog, metric);
  const ceiling = newestOf(view.columns, theme.ceiling);
  const limit = newestOf(view.columns, theme.limit?.metric);
  return {
    columns: view.broken,
    lines: reportedLines(theme, view.columns).map((line) => ({
      column: line.metric,
      stroke: line.stroke,
      area: theme.area ?? false,
    })),
    x: view.x,
    y: ceiling === null ? theme.y : { kind: "fixed", high: ceiling },
    hold: limit === null ? [] : [limit],
    gaps: view.gaps,
    completeThrough: view.completeThrough,
    staleSince: view.staleSince,
    limit,
    ticks: (values) => formatTicks(values, metric, unit),
  };
}

/** The sentence above a chart, about its first line that was reported. */
export function toSentence(theme: Theme, view: View, catalog: Catalog | undefined): string {
  const line = reportedLines(theme, view.columns)[0] ?? theme.lines[0];
  if (line === undefined) return "";
  const unit = unitOf(catalog, line.metric);
  const facts = {
    label: line.label,
    ts: view.broken.ts,
    values: view.broken.values[line.metric] ?? [],
    slotMs: view.slotMs,
    noise: theme.noise,
  };
  return sentence(facts, {
    value: (value) => formatValue(value, line.metric, unit),
    clock: formatClock,
    duration: (ms) => formatDuration(ms).replace(/\.0 s$/, " s"),
  });
}
