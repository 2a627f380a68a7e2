/** What Explore asks, as its address says it. */

import type { Catalog } from "../../api/fleet";
import type { GroupedRequest } from "../../api/grouped";
import type { WireMetric } from "../../api/wire";
import { rowResolution } from "../../panels/rows/row_templates";
import type { View } from "../../ui/view";

export const FILTERS = ["cluster", "host", "gpu", "job", "team", "model", "gpuModel"] as const;
export type FilterName = (typeof FILTERS)[number];

export const GROUPS = [
  { value: "total", label: "all together" },
  { value: "cluster", label: "cluster" },
  { value: "host", label: "host" },
  { value: "gpu", label: "GPU" },
  { value: "job", label: "job" },
  { value: "team", label: "team" },
  { value: "model", label: "model" },
  { value: "gpuModel", label: "product" },
  { value: "", label: "entity and part" },
];

const DAY_MS = 86_400_000;

export const EARLIER = [
  { value: "", label: "nothing", ms: 0 },
  { value: "1h", label: "1 h before", ms: 3_600_000 },
  { value: "1d", label: "1 day before", ms: DAY_MS },
  { value: "7d", label: "7 days before", ms: 7 * DAY_MS },
  { value: "28d", label: "28 days before", ms: 28 * DAY_MS },
] as const;

/** Series that are read at most; beyond fifty they are drawn as a band. */
const SERIES_MAXIMUM = 500;
const METRICS_DEFAULT = "gpu_utilization_ratio";

export interface Question {
  metrics: readonly string[];
  aggregate: string;
  groupBy: string;
  filters: Partial<Record<FilterName, string>>;
  earlierMs: number;
}

export function questionOf(params: URLSearchParams): Question {
  const filters: Question["filters"] = {};
  for (const name of FILTERS) {
    const value = params.get(name);
    if (value !== null) filters[name] = value;
  }
  const names = (params.get("metrics") ?? METRICS_DEFAULT).split(",").filter(Boolean);
  return {
    metrics: [...new Set(names)],
    aggregate: params.get("aggregate") ?? "",
    // An empty grouping cannot stand in an address, so a comma says it.
    groupBy: (params.get("groupBy") ?? "total").replace(",", ""),
    filters,
    earlierMs: EARLIER.find(({ value }) => value === params.get("vs"))?.ms ?? 0,
  };
}

/** Metrics of one kind go into one request, as the api answers one kind at a time. */
export function requestsOf(question: Question, view: View, catalog: Catalog): GroupedRequest[] {
  const kinds = new Map<string, string[]>();
  for (const metric of question.metrics) {
    const kind = catalog.get(metric)?.kind ?? "";
    kinds.set(kind, [...(kinds.get(kind) ?? []), metric]);
  }
  return [...kinds.values()].map((metrics) => ({
    metrics,
    aggregate: question.aggregate,
    filters: question.filters,
    groupBy: question.groupBy,
    window: view.window,
    resolution: rowResolution(view.span.to - view.span.from),
    limit: SERIES_MAXIMUM,
  }));
}

/** Aggregates that all chosen metrics may be read by. */
export function legalAggregates(metrics: readonly (WireMetric | undefined)[]): string[] {
  const [first, ...others] = metrics.filter((metric) => metric !== undefined);
  return (first?.aggregates ?? []).filter((aggregate) =>
    others.every((other) => other.aggregates.includes(aggregate)),
  );
}

const PROMQL_OF: Record<string, string> = { avg: "avg", min: "min", max: "max", sum: "sum" };

/** The same question in PromQL, as far as its words go. */
export function toPromql(question: Question, metric: WireMetric): string {
  const labels = Object.entries(question.filters).map(([name, value]) =>
    value.includes(",") ? `${name}=~"${value.replaceAll(",", "|")}"` : `${name}="${value}"`,
  );
  const selector = labels.length === 0 ? metric.name : `${metric.name}{${labels.join(",")}}`;
  const values = metric.type === "counter" ? `rate(${selector}[5m])` : selector;
  const outer = PROMQL_OF[question.aggregate] ?? "avg";
  if (question.groupBy === "") return values;
  return question.groupBy === "total"
    ? `${outer}(${values})`
    : `${outer} by (${question.groupBy}) (${values})`;
}
