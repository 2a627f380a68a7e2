/** Find the row that a figure of a sentence comes from, and the page that shows the same of the same time. */

import type { WireAsk, WireAskTable } from "../../api/wire";
import { fixedParams } from "../../model/window";
import { clusterPath, gpuPath, hostPath, jobPath, modelPath } from "../../panels/ladder";

/** Pages of what a row is about, the narrowest first. */
const PAGES: readonly [column: string, path: (name: string) => string][] = [
  ["gpu_id", gpuPath],
  ["gpu", gpuPath],
  ["host_id", hostPath],
  ["host", hostPath],
  ["job_id", jobPath],
  ["job", jobPath],
  ["model_id", modelPath],
  ["cluster_id", clusterPath],
  ["cluster", clusterPath],
];

/** Number of the row that holds a figure as it is written: "71.4 %"; null where none does. */
export function rowOf(table: WireAskTable, figure: string): number | null {
  const [text = ""] = /-?[\d,]*\.?\d+/.exec(figure) ?? [];
  const digits = text.split(".")[1]?.length ?? 0;
  const said = Number(text.replaceAll(",", ""));
  const isSame = (cell: unknown) => typeof cell === "number" && cell.toFixed(digits) === said.toFixed(digits);
  const found = table.rows.findIndex((row) => row.some(isSame));
  return text === "" || found < 0 ? null : found;
}

/** Address of the page of a row, or of the same question in Explore; both of the time that was asked about. */
export function sourceOf(answer: WireAsk, table: WireAskTable, row: number): string | null {
  const { timeRange, metrics } = answer.interpretation;
  const params = new URLSearchParams();
  if (timeRange !== null) {
    const { from, to } = fixedParams(Date.parse(timeRange.from), Date.parse(timeRange.to));
    params.set("from", from ?? "");
    params.set("to", to ?? "");
  }
  for (const [column, path] of PAGES) {
    const at = table.columns.findIndex(({ name }) => name === column);
    const name = at < 0 ? null : table.rows[row]?.[at];
    if (typeof name === "string" && name !== "") return `${path(name)}?${text(params)}`;
  }
  const known = metrics.filter((metric) => /^(gpu|node)_/.test(metric));
  if (known.length === 0) return null;
  params.set("metrics", known.join(","));
  return `/explore?${text(params)}`;
}

function text(params: URLSearchParams): string {
  return params.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
}
