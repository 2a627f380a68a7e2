/** What the four bands are of, and their outlines; apart from them, as what draws them comes later than the page. */

import type { YRange } from "../chart/axis";
import { Skeleton } from "../ui/states";
import "./bands.css";

export const BAND_PX = 104;

export interface BandTheme {
  metric: string;
  title: string;
  y: YRange;
}

export const BAND_THEMES: readonly BandTheme[] = [
  { metric: "gpu_utilization_ratio", title: "Utilisation", y: { kind: "share" } },
  { metric: "gpu_power_watts", title: "GPU power", y: { kind: "zero", atLeast: 0 } },
  { metric: "gpu_temperature_celsius", title: "Temperature", y: { kind: "tight", step: 15 } },
  {
    metric: "gpu_memory_used_bytes",
    title: "Memory",
    y: { kind: "zero", atLeast: 2 ** 30, base: 2 ** 30 },
  },
];

export const BAND_METRICS = BAND_THEMES.map((theme) => theme.metric);

export function BandsWaiting() {
  return (
    <div className="bands">
      {BAND_THEMES.map((theme, at) => (
        <section key={theme.metric} className="panel band" aria-label={theme.title}>
          <div className="panel-head">
            <h2>{theme.title}</h2>
          </div>
          <Skeleton height={BAND_PX + 20} waitsFor="the rollups" quiet={at > 0} />
        </section>
      ))}
    </div>
  );
}
