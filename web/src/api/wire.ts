/** Shapes of the api's answers, as its description says them; features see those of the files beside this one. */

import type { components } from "./schema";

type Schemas = components["schemas"];

export type WireColumns = Schemas["QueryAnswer"];
export type WireSeries = Schemas["SeriesAnswer"];
export type WireCoverage = Schemas["CoverageAnswer"];
export type WireGpu = Schemas["GpuAnswer"];
export type WireGpuColumns = Schemas["GpuColumns"];
export type WireGpuNames = Schemas["GpuNames"];
export type WireGpuPage = Schemas["GpuPage"];
export type WireFleet = Schemas["FleetAnswer"];
export type WireCatalog = Schemas["CatalogAnswer"];
export type WireMetric = Schemas["MetricAnswer"];
export type WirePlace = Schemas["PlaceAnswer"];
export type WireCluster = Schemas["ClusterAnswer"];
export type WireClusterPage = Schemas["ClusterPage"];
export type WireEvent = Schemas["EventAnswer"];
export type WireEventPage = Schemas["EventPage"];
export type WireFact = Schemas["FactAnswer"];
export type WireFactPage = Schemas["FactPage"];
export type WireGapPage = Schemas["GapPage"];
export type WireStory = Schemas["StoryAnswer"];
export type WireLedger = Schemas["LedgerPage"];
export type WireCollectorPage = Schemas["CollectorPage"];
export type WireTop = Schemas["TopAnswer"];
export type WireLetterCounts = Schemas["LetterCounts"];
export type WireLetterPage = Schemas["LetterPage"];
export type WireMaintenance = Schemas["MaintenanceList"];
export type WireDebug = Schemas["DebugList"];
export type WireMap = Schemas["MapAnswer"];
export type WireCell = Schemas["CellAnswer"];
export type WireHostCells = Schemas["HostCells"];
export type WireSearch = Schemas["SearchPage"];
export type WireAsk = Schemas["AskAnswer"];
export type WireAskTable = Schemas["AskTable"];
export type WireSqlResult = Schemas["SqlResult"];
export type WireViews = Schemas["ViewList"];
export type WireTenants = Schemas["TenantPage"];
export type WireGrants = Schemas["GrantPage"];
export type WireTokens = Schemas["TokenPage"];
export type WireAudit = Schemas["AuditPage"];
export type WireSession = Schemas["SessionAnswer"];
export type WireWays = Schemas["WaysAnswer"];

/** What answers say about themselves; lists say less than series. */
export type WireMeta = Partial<
  Pick<WireColumns, "effectiveResolution" | "expectedFrom" | "tier" | "coverage" | "partial" | "warnings">
> &
  Pick<WireColumns, "completeThrough" | "dataFreshnessMs">;

/** A refusal, or whatever else an intermediary sends in its place. */
export interface WireError {
  error?: Partial<Schemas["ErrorDetail"]>;
}
