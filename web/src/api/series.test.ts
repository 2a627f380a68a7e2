import { describe, expect, it } from "vitest";
import { platformOffset } from "./meta";
import { type Answer, align, pollEvery, tailStart, toColumns } from "./series";

function answer(ts: number[], completeThrough: number | null, freshnessMs: number | null = 0): Answer {
  const meta = {
    resolution: "1s",
    tier: "hot",
    expectedFrom: null,
    completeThrough,
    freshnessMs,
    coverage: null,
    partial: false,
    warnings: [],
    receivedAt: 100_000,
  };
  return { columns: { ts, values: {} }, meta, from: 0, to: 100_000 };
}

function series(metric: string, values: (number | null)[], part: string | null = null) {
  return { metric, unit: "1", aggregate: "avg", tenantId: "north", links: {}, part, values };
}

describe("toColumns", () => {
  it("names each column by the metric of its series, and its part", () => {
    const answer = { ts: [1000, 2000], series: [series("a", [1, 2]), series("b", [3, null], "link=3")] };
    expect(toColumns(answer)).toEqual({ ts: [1000, 2000], values: { a: [1, 2], "b link=3": [3, null] } });
  });
  it("brings series with their own times onto one timeline", () => {
    const parts = [
      { ts: [1, 3], values: { a: [10, 30] } },
      { ts: [2, 3], values: { b: [20, 31] } },
    ];
    expect(align(parts)).toEqual({ ts: [1, 2, 3], values: { a: [10, null, 30], b: [null, 20, 31] } });
  });
});

describe("tailStart", () => {
  it("asks again from where the answer was not complete", () => {
    expect(tailStart(answer([90_000, 95_000], 92_000))).toBe(92_000);
  });
  it("asks again for a minute at most", () => {
    expect(tailStart(answer([10_000, 95_000], 11_000))).toBe(35_000);
  });
  it("asks from the newest row where nothing says more", () => {
    expect(tailStart(answer([95_000], null))).toBe(95_000);
  });
});

describe("platformOffset", () => {
  it("takes small differences for travel time and large ones for a wrong clock", () => {
    expect(platformOffset(answer([99_000], null, 1500).meta, 99_000)).toBe(0);
    expect(platformOffset(answer([39_000], null, 1000).meta, 39_000)).toBe(-60_000);
  });
});

describe("pollEvery", () => {
  it("follows the resolution between one and fifteen seconds", () => {
    expect([pollEvery(1000, false), pollEvery(5000, false), pollEvery(300_000, false)]).toEqual([
      1000, 5000, 15_000,
    ]);
    expect(pollEvery(1000, true)).toBe(5000);
  });
});
