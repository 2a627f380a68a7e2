/** Turn a table of an answer into what a chart draws; null where a table says it better. */

import type { WireAskTable } from "../../api/wire";
import type { Cell, Columns } from "../../model/columns";

export type ChartData =
  | ({ kind: "lines"; names: string[]; columns: Columns; x: [number, number] } & Told)
  | ({ kind: "bars"; bars: { name: string; value: number }[] } & Told);

/** What the figures of a chart are of. */
interface Told {
  metric: string;
  unit: string;
  label: string;
}

const LINES_MAXIMUM = 5;

type Row = WireAskTable["rows"][number];

function isFigure(table: WireAskTable, at: number): boolean {
  return (
    table.rows.some((row) => typeof row[at] === "number") &&
    !table.keys.includes(table.columns[at]?.name ?? "")
  );
}

function instantOf(value: Row[number] | undefined): number | null {
  if (typeof value !== "string" || !/^\d{4}-\d\d-\d\d/.test(value)) return null;
  const ms = Date.parse(value.includes("T") ? value : `${value.replace(" ", "T")}Z`);
  return Number.isFinite(ms) ? ms : null;
}

function told(table: WireAskTable, figure: number): Told {
  const { name = "", unit = "", words = "" } = table.columns[figure] ?? {};
  return { metric: name, unit, label: words };
}

/** The column whose every row is a time; -1 where there is none. */
function timeColumn(table: WireAskTable): number {
  return table.columns.findIndex(
    (_, at) => table.rows.length > 1 && table.rows.every((row) => instantOf(row[at]) !== null),
  );
}

/** What has no owner has an empty name. */
const NO_NAME = "(none)";

function nameOf(row: Row, keys: readonly number[]): string {
  return keys.map((at) => (row[at] === "" ? NO_NAME : String(row[at] ?? "–"))).join(" · ");
}

function lines(table: WireAskTable, time: number, figure: number): ChartData {
  const keys = table.columns.flatMap((column, at) =>
    table.keys.includes(column.name) && at !== time ? [at] : [],
  );
  const of = told(table, figure);
  const cells = new Map<string, Map<number, Cell>>();
  for (const row of table.rows) {
    const name = nameOf(row, keys) || of.label;
    const line = cells.get(name) ?? new Map<number, Cell>();
    const value = row[figure];
    line.set(instantOf(row[time]) ?? 0, typeof value === "number" ? value : null);
    cells.set(name, line);
  }
  const ts = [...new Set(table.rows.map((row) => instantOf(row[time]) ?? 0))].sort((a, b) => a - b);
  const names = [...cells.keys()].slice(0, LINES_MAXIMUM);
  const values = Object.fromEntries(
    names.map((name) => [name, ts.map((at) => cells.get(name)?.get(at) ?? null)]),
  );
  return { kind: "lines", names, columns: { ts, values }, x: [ts[0] ?? 0, ts.at(-1) ?? 1], ...of };
}

export function chartOf(table: WireAskTable, chart: string): ChartData | null {
  const figure = table.columns.findIndex((_, at) => isFigure(table, at));
  if (figure < 0 || chart === "single value" || table.rows.length < 2) return null;
  const time = timeColumn(table);
  if (chart.startsWith("line") && time >= 0) return lines(table, time, figure);
  if (!chart.includes("bar")) return null;
  const keys = table.columns.flatMap((column, at) => (table.keys.includes(column.name) ? [at] : []));
  const bars = table.rows.flatMap((row) => {
    const value = row[figure];
    return typeof value === "number" ? [{ name: nameOf(row, keys), value }] : [];
  });
  return { kind: "bars", bars, ...told(table, figure) };
}
