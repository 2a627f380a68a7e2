/**
 * Shapes of the api's answers, by hand until they are generated from its description.
 * Only files of this folder read them; features see the shapes of `fleet.ts`, `series.ts` and `session.ts`.
 */

export interface WireCoverage {
  expectedSamples: number;
  storedSamples: number;
  ratio: number;
  /** Null where rollups were read, which hide them. */
  gaps: number | null;
  shed: number;
}

export interface WireMeta {
  effectiveResolution?: string;
  tier?: string;
  aggregate?: string;
  completeThrough?: string | number | null;
  dataFreshnessMs?: number | null;
  lateRatio?: number | null;
  coverage?: WireCoverage;
  partial?: boolean;
  warnings?: (string | { message: string })[];
}

export interface WireSeries {
  metric?: string;
  unit?: string;
  clusterId?: string;
  hostId?: string;
  gpuId?: string;
  part?: string;
  /** One timeline for all series, or one each. */
  ts?: (number | string)[];
  values: (number | null)[];
}

export interface WireColumns extends WireMeta {
  metric?: string;
  unit?: string;
  ts?: (number | string)[];
  series: WireSeries[];
}

export interface WireGpu {
  gpuId: string;
  hostId: string;
  clusterId: string;
  rack?: string | null;
  index?: number | null;
  gpuModel?: string | null;
  jobId?: string | null;
  workloadId?: string | null;
  ownerTeam?: string | null;
  modelId?: string | null;
  status?: string;
  lastSeen?: string | number | null;
  values?: Record<string, number | null>;
}

export interface WireGpuPage extends WireMeta {
  gpus: WireGpu[];
  nextCursor?: string | null;
  total?: number;
}

export interface WireFleet extends WireMeta {
  gpus: { total: number; reporting: number; silent: number; lost: number; unknown?: number };
  hosts: number;
  clusters: number;
  powerWatts?: number | null;
  utilizationRatio?: number | null;
  hottest?: { gpuId: string; hostId: string; index?: number | null; temperatureCelsius: number } | null;
}

export interface WireMetric {
  name: string;
  unit: string;
  type: string;
  description?: string;
  aggregates?: string[];
}

export interface WireCatalog {
  metrics: WireMetric[];
}

export interface WireSession {
  tenantId?: string | null;
  tenant?: string | null;
  role?: string | null;
  name?: string | null;
}

export interface WireError {
  error?: { code?: string; message?: string; hint?: string };
}
