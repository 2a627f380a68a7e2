/** The GPUs of some place in four figures, and in one sentence. */

import { type Catalog, type Fleet, type HealthCounts, unitOf } from "../api/fleet";
import type { PlaceSums } from "../api/places";
import { StatusWord, type Tone } from "../ui/icon";
import { Link } from "../ui/navigation";
import { countOf, formatNumber, formatValue } from "../ui/units";
import { keepWindow, type View } from "../ui/view";
import { clusterPath, gpuPath } from "./ladder";
import { sayReasons, weightOf } from "./status";
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
  catalog: Catalog | undefined;
}

export function Counts({ sums, catalog }: CountsProps) {
  const { health, total } = sums;
  const unknown = health.unknown === 0 ? "" : `, ${formatNumber(health.unknown)} unknown`;
  const calm = (words: string) => (total === 0 ? "none has reported yet" : words);
  return (
    <section className="panel counts" aria-label={`Health of ${formatNumber(total)} GPUs`}>
      <Count
        tone="ok"
        word="Healthy"
        count={health.healthy}
        total={total}
        why={`of ${countOf(total, "GPU")} on ${countOf(sums.hosts, "host")}${unknown}`}
      />
      <Count
        tone="warn"
        word="Degraded"
        count={health.degraded}
        total={total}
        why={health.degraded === 0 ? calm("nothing is found wrong") : sayReasons(health.reasons, "degraded")}
      />
      <Count
        tone="bad"
        word="Unavailable"
        count={health.unavailable}
        total={total}
        why={
          health.unavailable === 0 ? calm("every GPU can be used") : sayReasons(health.reasons, "unavailable")
        }
      />
      <Load sums={sums} catalog={catalog} />
    </section>
  );
}

/** The cluster with most that is wrong; null where nothing is. */
function worstCluster(clusters: readonly PlaceSums[]): PlaceSums | null {
  const [worst] = clusters.slice().sort((a, b) => weightOf(b.health) - weightOf(a.health));
  return worst === undefined || weightOf(worst.health) === 0 ? null : worst;
}

function sayWorst({ unavailable, degraded }: HealthCounts): string {
  const parts = [
    unavailable > 0 ? `${formatNumber(unavailable)} unavailable` : "",
    degraded > 0 ? `${formatNumber(degraded)} degraded` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

export interface VerdictProps {
  fleet: Fleet;
  clusters: readonly PlaceSums[];
  catalog: Catalog | undefined;
  view: View;
}

/** One look: is anything wrong, and where is it hottest. */
export function Verdict({ fleet, clusters, catalog, view }: VerdictProps) {
  const { hottest, health } = fleet;
  const unit = unitOf(catalog, "gpu_temperature_celsius");
  const worst = worstCluster(clusters);
  return (
    <p className="verdict-line">
      {worst === null ? (
        weightOf(health) === 0 && "All GPUs can be used, and nothing is found wrong. "
      ) : (
        <>
          <Link to={keepWindow(view, clusterPath(worst.cluster))} className="mention">
            {worst.cluster}
          </Link>{" "}
          is worst: {sayWorst(worst.health)}.{" "}
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
