import { describe, expect, it } from "vitest";
import {
  breakAtGaps,
  type Columns,
  findGaps,
  lowerBound,
  mergeTail,
  newest,
  rowAt,
  sliceRows,
} from "./columns";

function rows(...seconds: number[]): Columns {
  return { ts: seconds.map((second) => second * 1000), values: { a: seconds.map((second) => second * 10) } };
}

describe("mergeTail", () => {
  it("appends the new rows and drops what left the window", () => {
    const merged = mergeTail(rows(1, 2, 3), rows(3, 4), 3000, 2000);
    expect(merged).toEqual(rows(2, 3, 4));
  });
  it("lets a late row appear inside the overlap", () => {
    expect(mergeTail(rows(1, 2, 4), rows(3, 4, 5), 3000, 0)).toEqual(rows(1, 2, 3, 4, 5));
  });
  it("keeps columns that only one side has, empty where they are not known", () => {
    const merged = mergeTail(rows(1), { ts: [2000], values: { b: [7] } }, 2000, 0);
    expect(merged.values).toEqual({ a: [10, null], b: [null, 7] });
  });
  it("does not grow however long it runs", () => {
    let known = rows();
    for (let second = 1; second <= 1000; second += 1) {
      known = mergeTail(known, rows(second), second * 1000, (second - 60) * 1000);
    }
    expect(known.ts.length).toBe(61);
    expect(known.values["a"]?.length).toBe(61);
  });
});

describe("findGaps", () => {
  it("passes over up to three missing slots", () => {
    expect(findGaps([0, 1000, 5000], 1000, 0)).toEqual([]);
  });
  it("finds a longer run and says its first missing and next present slot", () => {
    expect(findGaps([0, 1000, 6000], 1000, 0)).toEqual([{ start: 2000, end: 6000 }]);
  });
  it("finds the run before the first row", () => {
    expect(findGaps([60_000], 1000, 0)).toEqual([{ start: 0, end: 60_000 }]);
  });
  it("finds none where nothing is known", () => expect(findGaps([], 1000, 0)).toEqual([]));
});

describe("breakAtGaps", () => {
  it("puts one empty row into each gap", () => {
    const broken = breakAtGaps(rows(0, 1, 9), [{ start: 2000, end: 9000 }]);
    expect(broken).toEqual({ ts: [0, 1000, 2000, 9000], values: { a: [0, 10, null, 90] } });
  });
  it("leaves columns without gaps as they are", () => {
    const columns = rows(0, 1);
    expect(breakAtGaps(columns, [])).toBe(columns);
  });
});

describe("rows", () => {
  it("finds the row that covers an instant", () => {
    expect(rowAt([0, 1000, 5000], 1500, 1000)).toBe(1);
    expect(rowAt([0, 1000, 5000], 3000, 1000)).toBe(null);
    expect(rowAt([], 3000, 1000)).toBe(null);
  });
  it("cuts half-open", () => expect(sliceRows(rows(1, 2, 3), 2000, 3000)).toEqual(rows(2)));
  it("bounds from below", () => expect(lowerBound([1, 3, 3, 5], 3)).toBe(1));
  it("finds the newest value behind missing ones", () => {
    expect(newest([1, 2, null])).toBe(2);
    expect(newest([null])).toBe(null);
    expect(newest(undefined)).toBe(null);
  });
});
