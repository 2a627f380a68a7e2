/** Shapes of the api's answers, as its description says them; features see those of the files beside this one. */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type WireColumns = Schemas["QueryAnswer"];
export type WireSeries = Schemas["SeriesAnswer"];
export type WireCoverage = Schemas["CoverageAnswer"];
export type WireGpu = Schemas["GpuAnswer"];
export type WireGpuPage = Schemas["GpuPage"];
export type WireFleet = Schemas["FleetAnswer"];
export type WireCatalog = Schemas["CatalogAnswer"];
export type WireMetric = Schemas["MetricAnswer"];
export type WireSession = Schemas["SessionAnswer"];

/** What answers say about themselves; lists say less than series. */
export type WireMeta = Partial<
  Pick<WireColumns, "effectiveResolution" | "expectedFrom" | "tier" | "coverage" | "partial" | "warnings">
> &
  Pick<WireColumns, "completeThrough" | "dataFreshnessMs">;

/** A refusal, or whatever else an intermediary sends in its place. */
export interface WireError {
  error?: Partial<Schemas["ErrorDetail"]>;
}
