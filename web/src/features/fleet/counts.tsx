/** The fleet in four figures. */

import { type Catalog, type Fleet, unitOf } from "../../api/fleet";
import { StatusWord, type Tone } from "../../ui/icon";
import { Link } from "../../ui/navigation";
import { formatNumber, formatValue } from "../../ui/units";

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

function Load({ fleet, catalog }: { fleet: Fleet; catalog: Catalog | undefined }) {
  const watts = formatValue(fleet.powerWatts, "gpu_power_watts", unitOf(catalog, "gpu_power_watts"));
  const busy = formatValue(
    fleet.utilizationRatio,
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

export function Counts({ fleet, catalog }: { fleet: Fleet; catalog: Catalog | undefined }) {
  const { counts, total } = fleet;
  const size = `of ${formatNumber(total)} GPUs on ${formatNumber(fleet.hosts)} hosts`;
  return (
    <section className="panel counts" aria-label={`State of ${formatNumber(total)} GPUs`}>
      <Count tone="ok" word="Reporting" count={counts.reporting} total={total} why={size} />
      <Count
        tone="warn"
        word="Silent"
        count={counts.silent}
        total={total}
        why="no sample for 30 s to 5 min"
      />
      <Count tone="bad" word="Lost" count={counts.lost} total={total} why="no sample for over 5 min" />
      <Load fleet={fleet} catalog={catalog} />
    </section>
  );
}

function troubles({ counts }: Fleet): string {
  const parts = [
    counts.lost > 0 ? `${formatNumber(counts.lost)} lost` : "",
    counts.silent > 0 ? `${formatNumber(counts.silent)} silent` : "",
    counts.unknown > 0 ? `${formatNumber(counts.unknown)} without data yet` : "",
  ].filter(Boolean);
  return parts.length === 0 ? "All GPUs report." : `${parts.join(", ")}.`;
}

/** One look: is anything wrong, and where is it hottest. */
export function Verdict({ fleet, catalog }: { fleet: Fleet; catalog: Catalog | undefined }) {
  const { hottest } = fleet;
  const unit = unitOf(catalog, "gpu_temperature_celsius");
  return (
    <p className="verdict-line">
      {troubles(fleet)}{" "}
      {hottest !== null && (
        <>
          Hottest is{" "}
          <Link to={`/gpus/${encodeURIComponent(hottest.gpuId)}`} className="mention">
            {hottest.hostId}
            {hottest.index !== null ? ` · ${hottest.index}` : ""}
          </Link>{" "}
          at {formatValue(hottest.temperatureCelsius, "gpu_temperature_celsius", unit)}.
        </>
      )}
    </p>
  );
}
