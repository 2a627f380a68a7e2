import { describe, expect, it } from "vitest";
import { medians, rankStragglers, waitedHours } from "./stragglers";

const MEMBERS = [
  { key: "a", values: [0.9, 0.9, 0.9] },
  { key: "b", values: [0.9, 0.9, null] },
  { key: "slow", values: [0.9, 0.45, 0.45] },
  { key: "c", values: [0.9, 0.92, 0.9] },
];

describe("rankStragglers", () => {
  it("puts the one that stays behind first", () => {
    const [first, ...others] = rankStragglers(MEMBERS, 3);
    expect(first?.key).toBe("slow");
    expect(first?.windows).toBe(2);
    expect(first?.behindRatio).toBeCloseTo(1 / 3);
    expect(others.every((each) => each.windows === 0)).toBe(true);
  });
  it("knows no median where most are silent", () => {
    expect(
      medians(
        [
          { key: "a", values: [1] },
          { key: "b", values: [] },
          { key: "c", values: [] },
        ],
        1,
      ),
    ).toEqual([null]);
  });
  it("says what waiting cost the others at most", () => {
    const [first] = rankStragglers(MEMBERS, 3);
    if (first === undefined) throw new Error("none");
    expect(waitedHours(first, 4, 1_200_000, 3)).toBeCloseTo(1);
  });
});
