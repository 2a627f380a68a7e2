import { describe, expect, it } from "vitest";
import { spreadOf, summarise } from "./spread";

describe("spreadOf", () => {
  it("ranks what is there at each instant", () => {
    const lines = Array.from({ length: 100 }, (_, index) => [index + 1, index < 50 ? null : 7]);
    const spread = spreadOf(lines, 2);
    expect([spread.min[0], spread.p5[0], spread.median[0], spread.p95[0], spread.max[0]]).toEqual([
      1, 5, 50, 95, 100,
    ]);
    expect(spread.median[1]).toBe(7);
  });
  it("is empty where nothing is told", () => expect(spreadOf([[null]], 1).median).toEqual([null]));
});

describe("summarise", () => {
  it("takes the last real value, with the time at which it was told", () => {
    const ts = [1559580404, 1559580408, 1559580412, 1559580416, 1559580420].map((second) => second * 1000);
    const cells = [5702692864, 5702909952, 5702909952, Number.NaN, Number.NaN];
    const found = summarise(ts, cells);
    expect(found.last).toBe(5702909952);
    expect((ts.at(-1) ?? 0) - (found.lastAt ?? 0)).toBe(8000);
    expect(found.max).toBe(5702909952);
  });
  it("knows nothing of an empty line", () => {
    expect(summarise([1], [null])).toEqual({ last: null, lastAt: null, mean: null, min: null, max: null });
  });
});
