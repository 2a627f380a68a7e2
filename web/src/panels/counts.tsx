/** The GPUs of some place in four figures, and in one sentence. */

import { type Catalog, type Fleet, type Gpu, unitOf } from "../api/fleet";
import { StatusWord, type Tone } from "../ui/icon";
import { Link } from "../ui/navigation";
import { countOf, formatNumber, formatValue } from "../ui/units";
import { keepWindow, type View } from "../ui/view";
import { titleOf } from "./event_words";
import type { Lasting } from "./findings";
import { gpuPath } from "./ladder";
import type { Sums } from "./sums";
import "./counts.css";

interface CountProps {
  tone: Tone;
  word: string;
  count: number;
  total: number;
  why: string;
}

function share(count: number, total: number): string {
  return total === 0 ? "" : `${((count / total) * 100).toFixed(1)} %`;
}

function Count({ tone, word, count, total, why }: CountProps) {
  return (
    <div className="count">
      <div className="count-line">
        <StatusWord tone={tone} word={word} />
        <span className="count-figure">{formatNumber(count)}</span>
        <span className="count-share">{share(count, total)}</span>
      </div>
      <p>{why}</p>
    </div>
  );
}

function Load({ sums, catalog }: { sums: Sums; catalog: Catalog | undefined }) {
  const watts = formatValue(sums.powerWatts, "gpu_power_watts", unitOf(catalog, "gpu_power_watts"));
  const busy = formatValue(
    sums.utilizationRatio,
    "gpu_utilization_ratio",
    unitOf(catalog, "gpu_utilization_ratio"),
  );
  return (
    <div className="count">
      <div className="count-line">
        <span className="count-name">Load</span>
        <span className="count-figure">{busy}</span>
        <span className="count-share">mean utilisation</span>
      </div>
      <p>
        drawing <b>{watts}</b>
      </p>
    </div>
  );
}

export interface CountsProps {
  sums: Sums;
  /** Undefined until the list of GPUs is there; the counts do not wait for it. */
  gpus: readonly Gpu[] | undefined;
  lasting: Lasting;
  catalog: Catalog | undefined;
}

/** GPUs that report and of which a finding lasts. */
export function degradedOf(gpus: readonly Gpu[] | undefined, lasting: Lasting): Gpu[] {
  return gpus?.filter((gpu) => gpu.status === "reporting" && lasting.has(gpu.id)) ?? [];
}

/** The most frequent findings of some GPUs: "12 hardware thermal slowdown". */
function reasonsOf(gpus: readonly Gpu[], lasting: Lasting): string {
  const counts = new Map<string, number>();
  for (const gpu of gpus) {
    const finding = lasting.get(gpu.id);
    if (finding === undefined) continue;
    const title = titleOf(finding);
    counts.set(title, (counts.get(title) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return sorted
    .slice(0, 2)
    .map(([title, count]) => `${formatNumber(count)} ${title}`)
    .join(", ");
}

export function Counts({ sums, gpus, lasting, catalog }: CountsProps) {
  const { counts, total } = sums;
  const degraded = degradedOf(gpus, lasting);
  const healthy = counts.reporting - degraded.length;
  const lost = counts.lost + counts.silent;
  return (
    <section className="panel counts" aria-label={`State of ${formatNumber(total)} GPUs`}>
      <Count
        tone="ok"
        word="Healthy"
        count={healthy}
        total={total}
        why={`of ${countOf(total, "GPU")} on ${countOf(sums.hosts, "host")}`}
      />
      <Count
        tone="warn"
        word="Degraded"
        count={degraded.length}
        total={total}
        why={degraded.length === 0 ? "no finding lasts" : reasonsOf(degraded, lasting)}
      />
      <Count
        tone="bad"
        word="Unavailable"
        count={lost}
        total={total}
        why={
          lost === 0
            ? "every GPU known has reported in 30 s"
            : `${formatNumber(counts.lost)} lost over 5 min, ${formatNumber(counts.silent)} silent over 30 s`
        }
      />
      <Load sums={sums} catalog={catalog} />
    </section>
  );
}

/** The cluster with most that is wrong, and how much that is. */
export function worstCluster(
  gpus: readonly Gpu[] | undefined,
  lasting: Lasting,
): { cluster: string; lost: number; degraded: number } | null {
  const sums = new Map<string, { cluster: string; lost: number; degraded: number }>();
  for (const gpu of gpus ?? []) {
    const sum = sums.get(gpu.cluster) ?? { cluster: gpu.cluster, lost: 0, degraded: 0 };
    if (gpu.status === "lost" || gpu.status === "silent") sum.lost += 1;
    else if (lasting.has(gpu.id)) sum.degraded += 1;
    sums.set(gpu.cluster, sum);
  }
  const [worst] = [...sums.values()].sort((a, b) => b.lost - a.lost || b.degraded - a.degraded);
  return worst === undefined || worst.lost + worst.degraded === 0 ? null : worst;
}

function sayWorst({ lost, degraded }: { lost: number; degraded: number }): string {
  const parts = [
    lost > 0 ? `${formatNumber(lost)} unavailable` : "",
    degraded > 0 ? `${formatNumber(degraded)} degraded` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

export interface VerdictProps {
  fleet: Fleet;
  gpus: readonly Gpu[] | undefined;
  lasting: Lasting;
  catalog: Catalog | undefined;
  view: View;
}

/** One look: is anything wrong, and where is it hottest. */
export function Verdict({ fleet, gpus, lasting, catalog, view }: VerdictProps) {
  const { hottest } = fleet;
  const unit = unitOf(catalog, "gpu_temperature_celsius");
  const worst = worstCluster(gpus, lasting);
  return (
    <p className="verdict-line">
      {worst === null ? (
        fleet.counts.reporting === fleet.total && "All GPUs report, and nothing is found wrong. "
      ) : (
        <>
          <Link to={keepWindow(view, `/clusters/${encodeURIComponent(worst.cluster)}`)} className="mention">
            {worst.cluster}
          </Link>{" "}
          is worst: {sayWorst(worst)}.{" "}
        </>
      )}
      {hottest !== null && (
        <>
          Hottest is{" "}
          <Link to={keepWindow(view, gpuPath(hottest.gpuId))} className="mention">
            {hottest.hostId}
            {hottest.index !== null ? ` · ${hottest.index}` : ""}
          </Link>{" "}
          at {formatValue(hottest.temperatureCelsius, "gpu_temperature_celsius", unit)}.
        </>
      )}
    </p>
  );
}
