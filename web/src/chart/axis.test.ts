import { describe, expect, it } from "vitest";
import { extent, niceCeiling, spreadLabels, timeTicks, yBounds, yTicks } from "./axis";

describe("yBounds", () => {
  it("draws shares from zero to one, and beyond only where data is", () => {
    expect(yBounds({ kind: "share" }, [0.4, 0.6])).toEqual([0, 1]);
    expect(yBounds({ kind: "share" }, [0, 1.05])).toEqual([0, 1.05]);
  });
  it("draws from zero to a round figure", () => {
    expect(yBounds({ kind: "zero", atLeast: 0 }, [100, 312])).toEqual([0, 400]);
    expect(yBounds({ kind: "zero", atLeast: 700 }, [100, 312])).toEqual([0, 800]);
    expect(yBounds({ kind: "zero", atLeast: 0 }, null)).toEqual([0, 1]);
    expect(yBounds({ kind: "zero", atLeast: 1, base: 2 ** 30 }, [0, 72 * 2 ** 30])).toEqual([
      0,
      80 * 2 ** 30,
    ]);
  });
  it("fits temperatures in steps, so that one degree does not move the axis", () => {
    expect(yBounds({ kind: "tight", step: 10 }, [63, 87])).toEqual([60, 90]);
    expect(yBounds({ kind: "tight", step: 10 }, [63.4, 87.4])).toEqual([60, 90]);
    expect(yBounds({ kind: "tight", step: 10 }, [65, 65])).toEqual([60, 80]);
  });
});

describe("niceCeiling", () => {
  it.each([
    [0, 1],
    [7, 8],
    [100, 100],
    [101, 200],
    [312, 400],
    [2.2e9, 3e9],
  ])("%d fits under %d", (value, nice) => expect(niceCeiling(value)).toBe(nice));
});

describe("ticks", () => {
  it("keeps to whole steps and to the room there is", () => {
    const { stepMs, at } = timeTicks([0, 1_800_000], 600);
    expect(stepMs).toBe(300_000);
    expect(at).toEqual([0, 300_000, 600_000, 900_000, 1_200_000, 1_500_000, 1_800_000]);
    expect(timeTicks([500, 10_500], 1000).stepMs).toBe(1000);
  });
  it("leaves the middle out of low plots", () => {
    expect(yTicks([0, 1], 40)).toEqual([0, 1]);
    expect(yTicks([0, 1], 80)).toEqual([0, 0.5, 1]);
  });
});

describe("extent", () => {
  it("passes over missing cells", () => {
    expect(
      extent([
        [1, null],
        [null, 5],
      ]),
    ).toEqual([1, 5]);
    expect(extent([[null]])).toBe(null);
  });
});

describe("spreadLabels", () => {
  it("moves neighbours apart and keeps them inside", () => {
    const spread = spreadLabels(
      [
        { name: "max", y: 2 },
        { name: "p95", y: 4 },
        { name: "min", y: 99 },
      ],
      12,
      80,
    );
    expect(spread.map((label) => label.y)).toEqual([2, 14, 80]);
  });
});
