/** Rows whose lines are what an answer holds: one line a series, five at most. */

import type { Grouped, Series } from "../../api/grouped";
import { align } from "../../api/series";
import type { Stroke } from "../../chart/options";
import type { RowLine, RowSpec } from "./spec";
import type { Drawn } from "./timeline";

export interface TemplateLine {
  metric: string;
  label: string;
  /** Only series of this aggregate. */
  aggregate?: string;
  stroke?: Stroke;
}

/** A row before it is known which series there are. */
export interface RowTemplate extends Omit<RowSpec, "lines"> {
  lines: readonly TemplateLine[];
}

const STROKES: readonly Stroke[] = ["s1", "s2", "s3", "s4", "s5"];

/** "device=bond0,direction=receive" as words that tell parts of one metric apart. */
function partWords(series: Series, all: readonly Series[]): string {
  if (all.length === 1) return "";
  const last = series.label.split(" · ").at(-1) ?? "";
  return last
    .split(",")
    .map((piece) => piece.slice(piece.indexOf("=") + 1))
    .join(" ");
}

function linesOf(line: TemplateLine, series: readonly Series[], first: number): RowLine[] {
  const mine = series.filter(
    (one) => one.metric === line.metric && (line.aggregate === undefined || one.aggregate === line.aggregate),
  );
  return mine.map((one, at) => ({
    metric: line.metric,
    column: one.column,
    unit: one.unit,
    label: [line.label, partWords(one, mine)].filter(Boolean).join(" "),
    stroke: line.stroke ?? STROKES[(first + at) % STROKES.length] ?? "s1",
  }));
}

/** The rows that some series fill. */
export function fillRows(templates: readonly RowTemplate[], series: readonly Series[]): RowSpec[] {
  return templates.flatMap((template) => {
    const lines: RowLine[] = [];
    for (const line of template.lines) lines.push(...linesOf(line, series, lines.length));
    return lines.length === 0 ? [] : [{ ...template, lines: lines.slice(0, STROKES.length) }];
  });
}

/** Several answers of one window as one; undefined until one tells something, or all have come. */
export function joinAnswers(answers: readonly (Grouped | undefined)[]): Drawn | undefined {
  const present = answers.filter((answer) => answer !== undefined);
  const told = present.find((answer) => answer.columns.ts.length > 0) ?? present[0];
  if (told === undefined || (told.columns.ts.length === 0 && present.length < answers.length))
    return undefined;
  return { columns: align(present.map((answer) => answer.columns)), meta: told.meta, from: told.from };
}

/** Resolution at which a window of this length has several hundred points. */
export function rowResolution(lengthMs: number): string {
  if (lengthMs <= 900_000) return "1s";
  return lengthMs <= 3_600_000 ? "10s" : "auto";
}
