import { describe, expect, it } from "vitest";
import { type Grouped, type Series, withTail } from "./grouped";
import type { Meta } from "./meta";

const series = (column: string): Series => ({
  column,
  metric: "m",
  aggregate: "avg",
  unit: "W",
  label: column,
  gpu: "",
  host: "",
});

function answer(ts: number[], values: Grouped["columns"]["values"], to: number): Grouped {
  const names = Object.keys(values);
  return {
    columns: { ts, values },
    series: names.map(series),
    total: names.length,
    meta: { expectedFrom: 0 } as Meta,
    from: 0,
    to,
  };
}

describe("withTail", () => {
  const known = answer([0, 10, 20], { a: [1, 2, 3], b: [5, null, null] }, 30);
  const next = withTail(known, answer([20, 30], { a: [4, 6], c: [null, 7] }, 40), 20, 30);

  it("takes the newer end, and drops what is before the window", () => {
    expect([next.columns.ts, next.columns.values["a"]]).toEqual([
      [10, 20, 30],
      [2, 4, 6],
    ]);
    expect([next.from, next.to]).toEqual([10, 40]);
  });
  it("knows series that begin, and forgets those that have nothing left", () => {
    expect(next.series.map((one) => one.column)).toEqual(["a", "c"]);
    expect(next.columns.values["c"]).toEqual([null, null, 7]);
    expect(next.total).toBe(2);
  });
});
