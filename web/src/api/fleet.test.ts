import { expect, test } from "vitest";
import { toGpus } from "./fleet";
import type { WireGpuColumns } from "./wire";

const NAMES = ["a", "b", "c"].map((id, index) => ({
  id,
  host: "h1",
  cluster: "c1",
  rack: "r1",
  index,
  product: "H100",
  job: "",
  team: "",
  model: "",
}));

const WIRE: WireGpuColumns = {
  layout: "x",
  names: null,
  notable: [{ at: 1, status: "lost", health: { verdict: "unavailable", evidence: [] } }],
  newest: "2026-11-29T10:00:00.000Z",
  behindMs: [0, 94_000, null],
  values: { gpu_power_watts: [612.5, null, 90] },
  total: 3,
  completeThrough: null,
  dataFreshnessMs: 1000,
};

test("whoever is not noted reports and is healthy; what is absent is no zero", () => {
  const [a, b, c] = toGpus(NAMES, WIRE);
  expect(a).toMatchObject({ id: "a", status: "reporting", health: { verdict: "healthy" } });
  expect(b).toMatchObject({ id: "b", status: "lost", health: { verdict: "unavailable" } });
  expect(a?.lastSeen).toBe(Date.parse("2026-11-29T10:00:00Z"));
  expect((a?.lastSeen ?? 0) - (b?.lastSeen ?? 0)).toBe(94_000);
  expect(c?.lastSeen).toBe(null);
  expect([a, b, c].map((gpu) => gpu?.values.gpu_power_watts)).toEqual([612.5, null, 90]);
});
