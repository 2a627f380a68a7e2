import { describe, expect, it } from "vitest";
import { evenStep, heatStep } from "./heat";

describe("heatStep", () => {
  it.each([
    [20, 0],
    [41.9, 0],
    [66, 3],
    [72.9, 3],
    [88, 7],
    [104, 7],
  ])("%d degrees are step %d", (celsius, step) => expect(heatStep(celsius)).toBe(step));
  it("has none for what is missing", () => expect(heatStep(null)).toBe(null));
});

describe("evenStep", () => {
  it("cuts the range into eight", () => {
    expect([0, 0.124, 0.126, 0.99, 1, 1.2].map((value) => evenStep(value, 1))).toEqual([0, 0, 1, 7, 7, 7]);
    expect(evenStep(null, 1)).toBe(null);
    expect(evenStep(3, 0)).toBe(null);
  });
});
