/** Which card this is, what it does, and how it stands now. */

import { type Catalog, type Gpu, unitOf } from "../../api/fleet";
import { type Columns, newest } from "../../model/columns";
import { stepsTo } from "../../panels/ladder";
import { GpuStatus } from "../../panels/status";
import { Crumbs, type Siblings } from "../../ui/crumbs";
import { formatClock, formatDay, formatDuration } from "../../ui/times";
import { formatValue } from "../../ui/units";
import type { View } from "../../ui/view";

export function titleOf(gpu: Gpu | undefined, id: string): string {
  if (gpu === undefined) return id;
  return gpu.index === null ? gpu.host : `${gpu.host} · GPU ${gpu.index}`;
}

export interface GpuHeaderProps {
  gpu: Gpu | undefined;
  id: string;
  view: View;
  siblings: Siblings;
}

export function GpuHeader({ gpu, id, view, siblings }: GpuHeaderProps) {
  return (
    <div className="gpu-header">
      <Crumbs steps={stepsTo(gpu, view)} siblings={siblings} />
      <div className="gpu-title">
        <h1>{titleOf(gpu, id)}</h1>
        <span>{gpu?.product}</span>
        {gpu !== undefined && <span className="mono">{id}</span>}
      </div>
    </div>
  );
}

interface FactProps {
  name: string;
  value: string;
  than: string;
}

function Fact({ name, value, than }: FactProps) {
  return (
    <div className="verdict-fact">
      <div>{name}</div>
      <p>
        <b>{value}</b> {than}
      </p>
    </div>
  );
}

function sayMargin(margin: number, shown: string): string {
  if (Math.round(margin) === 0) return "where it slows down";
  return `${shown} ${margin < 0 ? "above" : "below"} slowdown`;
}

/** What the newest values say beside their limits. */
function nowFacts(columns: Columns | undefined, catalog: Catalog | undefined): FactProps[] {
  const at = (metric: string) => newest(columns?.values[metric]);
  const say = (metric: string, value: number | null) => formatValue(value, metric, unitOf(catalog, metric));
  const temperature = at("gpu_temperature_celsius");
  const slowdown = at("gpu_slowdown_temperature_celsius");
  const margin = temperature === null || slowdown === null ? null : slowdown - temperature;
  const limit = at("gpu_power_limit_watts");
  const total = at("gpu_memory_total_bytes");
  return [
    {
      name: "Temperature",
      value: say("gpu_temperature_celsius", temperature),
      than: margin === null ? "" : sayMargin(margin, say("gpu_temperature_celsius", Math.abs(margin))),
    },
    {
      name: "Power",
      value: say("gpu_power_watts", at("gpu_power_watts")),
      than: limit === null ? "" : `of a ${say("gpu_power_watts", limit)} limit`,
    },
    {
      name: "Memory",
      value: say("gpu_memory_used_bytes", at("gpu_memory_used_bytes")),
      than: total === null ? "" : `of ${say("gpu_memory_used_bytes", total)}`,
    },
  ];
}

export interface VerdictProps {
  gpu: Gpu | undefined;
  columns: Columns | undefined;
  catalog: Catalog | undefined;
  ageMs: number | null;
}

function since(gpu: Gpu | undefined, ageMs: number | null): string {
  if (gpu === undefined) return "";
  const at = gpu.health.evidence[0]?.since ?? null;
  if (at !== null) return `since ${formatDay(at)} ${formatClock(at)}`;
  return ageMs === null ? "no sample in this window" : `newest sample ${formatDuration(ageMs)} ago`;
}

/** When a card that tells nothing now told its figures; null where they are of now. */
function lastTold(gpu: Gpu | undefined, columns: Columns | undefined): string | null {
  const at = columns?.ts.at(-1);
  if (gpu === undefined || gpu.status === "reporting" || at === undefined) return null;
  return `at ${formatClock(at)}`;
}

export function Verdict({ gpu, columns, catalog, ageMs }: VerdictProps) {
  return (
    <section className="panel verdict" aria-label="State now">
      <div className="verdict-state">
        {gpu === undefined ? <div>State</div> : <GpuStatus health={gpu.health} />}
        {gpu === undefined ? <b>–</b> : <div>{since(gpu, ageMs)}</div>}
      </div>
      {nowFacts(columns, catalog).map((fact) => (
        <Fact key={fact.name} {...fact} than={lastTold(gpu, columns) ?? fact.than} />
      ))}
    </section>
  );
}
