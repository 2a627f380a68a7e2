/** Which card this is, what it does, and how it stands now. */

import { type Catalog, type Gpu, type Status, unitOf } from "../../api/fleet";
import { type Columns, newest } from "../../model/columns";
import { Icon, StatusWord, type Tone } from "../../ui/icon";
import { Link } from "../../ui/navigation";
import { formatDuration } from "../../ui/times";
import { formatValue } from "../../ui/units";

const TONES: Record<Status, Tone> = { reporting: "ok", silent: "warn", lost: "bad", unknown: "none" };
const WORDS: Record<Status, string> = {
  reporting: "Reporting",
  silent: "Silent",
  lost: "Lost",
  unknown: "Unknown",
};

export function titleOf(gpu: Gpu | undefined, id: string): string {
  if (gpu === undefined) return id;
  return gpu.index === null ? gpu.host : `${gpu.host} · GPU ${gpu.index}`;
}

export function GpuHeader({ gpu, id }: { gpu: Gpu | undefined; id: string }) {
  const find = (text: string) => `/gpus?q=${encodeURIComponent(text)}`;
  return (
    <div className="gpu-header">
      <nav className="crumbs" aria-label="Where this GPU is">
        <Link to="/">Fleet</Link>
        {[gpu?.cluster, gpu?.rack, gpu?.host].filter(Boolean).map((name) => (
          <span key={name}>
            <Icon name="right" size={12} />
            <Link to={find(name ?? "")}>{name}</Link>
          </span>
        ))}
      </nav>
      <div className="gpu-title">
        <h1>{titleOf(gpu, id)}</h1>
        <span>{gpu?.product}</span>
        {gpu !== undefined && <span className="mono">{id}</span>}
        {gpu !== undefined && gpu.job !== "" && (
          <Link to={find(gpu.job)} className="job">
            {gpu.job}
          </Link>
        )}
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

/** What the newest values say beside their limits. */
export function nowFacts(columns: Columns | undefined, catalog: Catalog | undefined): FactProps[] {
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
      than:
        margin === null
          ? ""
          : `${say("gpu_temperature_celsius", Math.abs(margin))} ${margin < 0 ? "above" : "below"} slowdown`,
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

export function Verdict({ gpu, columns, catalog, ageMs }: VerdictProps) {
  const status = gpu?.status ?? "unknown";
  return (
    <section className="panel verdict" aria-label="State now">
      <div className="verdict-state">
        <StatusWord tone={TONES[status]} word={WORDS[status]} />
        <div>
          {ageMs === null ? "no sample in this window" : `newest sample ${formatDuration(ageMs)} ago`}
        </div>
      </div>
      {nowFacts(columns, catalog).map((fact) => (
        <Fact key={fact.name} {...fact} />
      ))}
    </section>
  );
}
