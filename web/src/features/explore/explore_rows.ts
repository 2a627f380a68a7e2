/** Turn answers into rows: the five greatest lines in colour, the others in grey, more than fifty as one band. */

import type { Catalog } from "../../api/fleet";
import type { Grouped, Series } from "../../api/grouped";
import type { WireMetric } from "../../api/wire";
import type { YRange } from "../../chart/axis";
import type { Stroke } from "../../chart/options";
import type { Cell, Columns } from "../../model/columns";
import { type Summary, spreadOf, summarise } from "../../model/spread";
import type { RowLine, RowSpec } from "../../panels/rows/spec";
import { isShare } from "../../ui/units";

const LINES_MAXIMUM = 50;
const STROKES: readonly Stroke[] = ["s1", "s2", "s3", "s4", "s5"];
const BEFORE = "\nbefore";
const HEIGHT_PX = 168;

export interface SeriesSummary extends Summary {
  series: Series;
  /** Its colour in the chart; null where it is drawn in grey, or inside a band. */
  stroke: Stroke | null;
}

export interface Explored {
  specs: RowSpec[];
  columns: Columns;
  summaries: SeriesSummary[];
  /** Series that the answers left out. */
  more: number;
}

function boundsOf(metric: WireMetric | undefined, name: string): YRange {
  if (isShare(name, metric?.unit ?? "")) return { kind: "share" };
  if (metric?.unit === "Cel") return { kind: "tight", step: 10 };
  return { kind: "zero", atLeast: 0, ...(metric?.unit === "By" ? { base: 2 ** 30 } : {}) };
}

/** Lines of a band for many series, with its columns. */
function bandLines(metric: string, unit: string, series: readonly Series[], columns: Columns) {
  const cells = series.map((one) => columns.values[one.column] ?? []);
  const spread = spreadOf(cells, columns.ts.length);
  const name = (key: string) => `${metric}\nspread ${key}`;
  const line = (key: string, label: string, more: Partial<RowLine>): RowLine => ({
    metric,
    unit,
    column: name(key),
    label,
    stroke: "s1",
    ...more,
  });
  const lines = [
    line("p95", "p95", { width: 0.75, bandTo: name("p5") }),
    line("p5", "p5", { width: 0.75 }),
    line("max", "max", { width: 0.5, dash: [1, 3], isQuiet: true }),
    line("min", "min", { width: 0.5, dash: [1, 3], isQuiet: true }),
    line("median", "median", { width: 1.5 }),
  ];
  const values = Object.fromEntries(
    Object.entries(spread).map(([key, each]) => [name(key), each as Cell[]] as const),
  );
  return { lines, values };
}

function lineOf(summary: SeriesSummary, label: string, metric: WireMetric | undefined): RowLine {
  const { series, stroke } = summary;
  return {
    metric: series.metric,
    unit: series.unit,
    column: series.column,
    label: label || metric?.name || series.metric,
    stroke: stroke ?? "ghost",
    width: stroke === null ? 0.75 : 1.25,
    isQuiet: stroke === null,
  };
}

function ghostsOf(lines: readonly RowLine[], columns: Columns): RowLine[] {
  return lines.flatMap((line) => {
    const column = `${line.column ?? ""}${BEFORE}`;
    if (!(column in columns.values)) return [];
    const label = `was ${line.label.split(" · ").at(-1) ?? ""}`;
    const head = `${line.label}, before`;
    return [{ ...line, column, label, head, dash: [4, 3], width: 1, stroke: "ghost" as const }];
  });
}

/** Labels without what all of them say in the same place; what comes last stands alone where it tells them apart. */
export function toldApart(labels: readonly string[]): string[] {
  const split = labels.map((label) => label.split(" · "));
  const [first = []] = split;
  const last = split.map((words) => words.at(-1) ?? "");
  if (first.length > 1 && labels.length > 1 && new Set(last).size === labels.length) return last;
  const isAlike = first.map((word, at) => split.every((words) => words[at] === word));
  if (labels.length < 2 || split.some((words) => words.length !== first.length)) return [...labels];
  return split.map(
    (words, index) => words.filter((_, at) => !isAlike[at]).join(" · ") || (labels[index] ?? ""),
  );
}

/**
 * Series by their mean, greatest first; the first five have a colour.
 *
 * `coloured` holds the colours that the charts above gave: what has one there has the same here.
 */
function summariesOf(
  series: readonly Series[],
  columns: Columns,
  coloured: Map<string, Stroke>,
): SeriesSummary[] {
  const all = series.map((one) => ({
    series: one,
    ...summarise(columns.ts, columns.values[one.column] ?? []),
  }));
  all.sort((a, b) => (b.mean ?? Number.NEGATIVE_INFINITY) - (a.mean ?? Number.NEGATIVE_INFINITY));
  if (all.length > LINES_MAXIMUM) return all.map((each) => ({ ...each, stroke: null }));
  const held = new Set(all.flatMap(({ series: { label } }) => coloured.get(label) ?? []));
  const free = STROKES.filter((stroke) => !held.has(stroke));
  return all.map((each) => {
    const { label } = each.series;
    const stroke = coloured.get(label) ?? free.shift() ?? null;
    if (stroke !== null) coloured.set(label, stroke);
    return { ...each, stroke };
  });
}

/** The columns of all answers and of the earlier ones, which get names of their own. */
function joined(columns: Columns, earlier: readonly Grouped[]): Columns {
  const values = { ...columns.values };
  for (const { columns: before } of earlier) {
    const at = new Map(before.ts.map((instant, index) => [instant, index]));
    for (const [name, cells] of Object.entries(before.values)) {
      values[`${name}${BEFORE}`] = columns.ts.map((instant) => cells[at.get(instant) ?? -1] ?? null);
    }
  }
  return { ts: columns.ts, values };
}

export function explore(
  metrics: readonly string[],
  columns: Columns,
  found: readonly Grouped[],
  earlier: readonly Grouped[],
  catalog: Catalog,
): Explored {
  const all = joined(columns, earlier);
  const specs: RowSpec[] = [];
  const summaries: SeriesSummary[] = [];
  const values = { ...all.values };
  const coloured = new Map<string, Stroke>();
  for (const name of metrics) {
    const metric = catalog.get(name);
    const series = found.flatMap((answer) => answer.series.filter((one) => one.metric === name));
    if (series.length === 0) continue;
    const mine = summariesOf(series, all, coloured);
    summaries.push(...mine);
    const unit = series[0]?.unit ?? "";
    const shared = { title: name, heightPx: HEIGHT_PX, y: boundsOf(metric, name), noise: 0 };
    if (series.length > LINES_MAXIMUM) {
      const band = bandLines(name, unit, series, all);
      Object.assign(values, band.values);
      specs.push({ ...shared, lines: band.lines });
    } else {
      const labels = toldApart(mine.map((each) => each.series.label));
      const lines = mine.map((each, at) => lineOf(each, labels[at] ?? "", metric));
      const quiet = lines.filter((line) => line.isQuiet === true);
      const named = lines.filter((line) => line.isQuiet !== true);
      specs.push({ ...shared, lines: [...quiet, ...named, ...ghostsOf(named, all)] });
    }
  }
  const more = found.reduce((sum, answer) => sum + Math.max(0, answer.total - answer.series.length), 0);
  return { specs, columns: { ts: all.ts, values }, summaries, more };
}
