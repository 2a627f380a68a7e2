/** The strip of a job's GPUs and the ranking that is made of it. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import type { Happening } from "../../api/events";
import { type Catalog, catalogQuery, type Gpu, unitOf } from "../../api/fleet";
import { type Grouped, groupedQuery } from "../../api/grouped";
import type { Cell } from "../../model/columns";
import { evenStep, heatStep } from "../../model/heat";
import { medians, rankStragglers } from "../../model/stragglers";
import { fixedParams, parseResolution } from "../../model/window";
import { nameOf } from "../../panels/gpu_columns";
import { gpuPath } from "../../panels/ladder";
import { useNames } from "../../panels/names";
import type { Timeline } from "../../panels/rows/timeline";
import { navigate } from "../../ui/navigation";
import { Segment } from "../../ui/segment";
import { compareNames } from "../../ui/table_sort";
import { formatValue } from "../../ui/units";
import type { View } from "../../ui/view";
import { clearStraggler, Stragglers } from "./stragglers";
import { Strip, type StripRow } from "./strip";

const CHOICES = [
  { value: "gpu_utilization_ratio", label: "Use" },
  { value: "gpu_sm_active_ratio", label: "SM active" },
  { value: "gpu_sm_clock_hertz", label: "SM clock" },
  { value: "gpu_power_watts", label: "Power" },
  { value: "gpu_temperature_celsius", label: "Heat" },
] as const;
/** Behind by so much is the end of the scale. */
const LAG_MOST_RATIO = 0.4;
const AROUND_MS = 150_000;
const GPUS_MAXIMUM = 1024;

/** A window of any length as a few hundred columns. */
function stripResolution(lengthMs: number): string {
  if (lengthMs <= 300_000) return "1s";
  return lengthMs <= 7_200_000 ? "30s" : "auto";
}

function toRows(found: Grouped | undefined, names: ReadonlyMap<string, Gpu>): StripRow[] {
  const rows = (found?.series ?? []).map((series) => {
    const gpu = names.get(series.gpu);
    return {
      key: series.gpu,
      host: series.host,
      name: gpu === undefined ? `${series.host} · ${series.gpu.slice(0, 12)}` : nameOf(gpu),
      values: found?.columns.values[series.column] ?? [],
    };
  });
  return rows.sort((a, b) => compareNames(a.name, b.name));
}

function formatter(metric: string, catalog: Catalog | undefined): (value: number) => string {
  const unit = unitOf(catalog, metric);
  return (value) => formatValue(value, metric, unit);
}

/** Step of heat by how far a value is behind the median of its window. */
function lagStep(value: Cell, median: Cell): number | null {
  if (value === null || median === null) return null;
  return median <= 0 ? 0 : evenStep(Math.max(0, 1 - value / median), LAG_MOST_RATIO);
}

export interface LagProps {
  kind: "job" | "model";
  name: string;
  view: View;
  events: readonly Happening[];
  /** The time line that takes the strip as its lowest row. */
  children: (strip: (timeline: Timeline) => ReactNode) => ReactNode;
}

export function Lag({ kind, name, view, events, children }: LagProps) {
  const { data: catalog } = useQuery(catalogQuery);
  const names = useNames();
  const metric = CHOICES.find(({ value }) => value === view.params.get("strip"))?.value ?? CHOICES[0].value;
  const { data: found } = useQuery(
    groupedQuery({
      metrics: [metric],
      aggregate: "avg",
      filters: { [kind]: name },
      groupBy: "gpu",
      window: view.window,
      resolution: stripResolution(view.span.to - view.span.from),
      limit: GPUS_MAXIMUM,
    }),
  );
  const rows = useMemo(() => toRows(found, names), [found, names]);
  const windows = found?.columns.ts.length ?? 0;
  const slotMs = parseResolution(found?.meta.resolution ?? "") ?? 1000;
  const isHeat = metric === "gpu_temperature_celsius";
  const ranking = useMemo(() => (isHeat ? [] : rankStragglers(rows, windows)), [rows, windows, isHeat]);
  const stepOf = useMemo(() => {
    if (isHeat) return (value: Cell) => heatStep(value);
    const middle = medians(rows, windows);
    return (value: Cell, column: number) => lagStep(value, middle[column] ?? null);
  }, [rows, windows, isHeat]);
  const marked = clearStraggler(ranking, windows)?.key ?? null;
  const say = useMemo(() => formatter(metric, catalog), [metric, catalog]);
  const label = CHOICES.find(({ value }) => value === metric)?.label ?? metric;
  const open = (row: StripRow, at: number) => {
    const around = fixedParams(at - AROUND_MS, at + AROUND_MS);
    navigate(`${gpuPath(row.key)}?from=${around["from"]}&to=${around["to"]}`);
  };
  const strip = (timeline: Timeline) => (
    <section className="strip-section" aria-label={`${label} by GPU`}>
      <div className="strip-head">
        <h2>{label} by GPU</h2>
        <span className="sub">
          {rows.length} GPUs × {windows} windows{isHeat ? "" : ", stronger is further behind"}
        </span>
        <Segment
          label="strip shows"
          choices={CHOICES}
          value={metric}
          onChoose={(value) => view.set({ strip: value })}
        />
      </div>
      <Strip
        rows={rows}
        ts={found?.columns.ts ?? []}
        slotMs={slotMs}
        x={timeline.x}
        stepOf={stepOf}
        marked={marked}
        say={say}
        label={`${label} of ${rows.length} GPUs over ${windows} windows; the list of stragglers says who is behind`}
        onOpen={open}
      />
    </section>
  );
  return (
    <div className="work-body">
      {children(strip)}
      <aside className="side" aria-label={`Who holds back this ${kind}`}>
        {ranking.length > 1 && (
          <Stragglers
            ranking={ranking}
            windows={windows}
            slotMs={slotMs}
            what={label}
            say={say}
            names={names}
            events={events}
            view={view}
          />
        )}
      </aside>
    </div>
  );
}
