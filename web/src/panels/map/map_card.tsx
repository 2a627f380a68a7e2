/** The card of the GPU under the cursor of the map. */

import { type Catalog, type Gpu, unitOf } from "../../api/fleet";
import type { MapCell } from "../../api/map";
import { StatusWord, type Tone } from "../../ui/icon";
import { formatValue } from "../../ui/units";
import { nameOf } from "../gpu_columns";

const TONE_WORDS: Record<Tone, string> = {
  ok: "Healthy",
  warn: "Degraded",
  bad: "Unavailable",
  none: "Unknown",
};

export function wordOfTone(tone: Tone): string {
  return TONE_WORDS[tone];
}

export interface MapCardProps {
  place: MapCell;
  /** Undefined until the list of GPUs is there. */
  gpu: Gpu | undefined;
  tone: Tone;
  catalog: Catalog | undefined;
  /** Values by metric, as of the time that the map shows. */
  values: Record<string, number | null>;
  beside: { x: number; y: number; flip: boolean };
}

/** What the card says, in one line, for readers who do not see it. */
export function sayPlace(place: MapCell, tone: Tone, value: string): string {
  const parts = [nameOf(place), place.cluster, place.rack, TONE_WORDS[tone].toLowerCase(), value];
  return parts.filter(Boolean).join(", ");
}

export function MapCard({ place, gpu, tone, catalog, values, beside }: MapCardProps) {
  const say = (metric: string) => formatValue(values[metric], metric, unitOf(catalog, metric));
  const why = gpu?.health.evidence[0]?.text;
  const load = ["gpu_utilization_ratio", "gpu_power_watts", "gpu_memory_used_bytes"]
    .filter((metric) => metric in values)
    .map(say);
  const lines: [string, string][] = [
    ["Where", [place.cluster, place.rack, place.host].filter(Boolean).join(" › ")],
    ...("gpu_temperature_celsius" in values
      ? [["Temperature", say("gpu_temperature_celsius")] as [string, string]]
      : []),
    ...(load.length === 0 ? [] : [["Load", load.join(", ")] as [string, string]]),
    ["Job", gpu?.job || "none"],
    ...(why === undefined ? [] : [["Why", why] as [string, string]]),
  ];
  return (
    <div
      className={beside.flip ? "map-card flip" : "map-card"}
      style={{ left: beside.x, top: beside.y }}
      aria-hidden="true"
    >
      <div className="map-card-head">
        <b>{nameOf(place)}</b>
        <StatusWord tone={tone} word={TONE_WORDS[tone]} />
      </div>
      <dl>
        {lines.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <p>Enter opens · arrows move · C compares</p>
    </div>
  );
}
