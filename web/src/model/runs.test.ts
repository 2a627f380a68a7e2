import { describe, expect, it } from "vitest";
import { runsOfBit } from "./runs";

const WHOLE = [0, 100_000] as const;

describe("runsOfBit", () => {
  it("joins neighbours and ends where the bit is gone", () => {
    expect(runsOfBit([0, 1000, 2000, 3000], [64, 65, 1, 64], 64, 1000, WHOLE)).toEqual([
      [0, 2000],
      [3000, 4000],
    ]);
  });
  it("does not bridge what was not told", () => {
    expect(runsOfBit([0, 1000, 2000], [4, null, 4], 4, 1000, WHOLE)).toEqual([
      [0, 1000],
      [2000, 3000],
    ]);
    expect(runsOfBit([0, 9000], [4, 4], 4, 1000, WHOLE)).toEqual([
      [0, 1000],
      [9000, 10_000],
    ]);
  });
  it("leaves out runs beside the window", () => {
    expect(runsOfBit([0, 5000], [4, 4], 4, 1000, [4000, 9000])).toEqual([[5000, 6000]]);
  });
});
