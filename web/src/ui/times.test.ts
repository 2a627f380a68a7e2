import { describe, expect, it } from "vitest";
import {
  formatAge,
  formatDuration,
  formatMoment,
  formatRange,
  formatResolution,
  formatShortRange,
  formatTick,
} from "./times";

const MORNING = Date.UTC(2026, 10, 29, 10, 15, 0);

describe("formatRange", () => {
  it("says the day once", () => {
    expect(formatRange(MORNING, MORNING + 1_800_000)).toBe("29 Nov 2026 10:15:00 – 10:45:00");
    expect(formatShortRange(MORNING, MORNING + 1_800_000)).toBe("29 Nov 10:15:00 – 10:45:00");
  });
  it("says both days where they differ", () => {
    expect(formatRange(MORNING, MORNING + 86_400_000)).toBe("29 Nov 2026 10:15:00 – 30 Nov 10:15:00");
  });
});

describe("formatMoment", () => {
  it("says the day where it is not this one", () => {
    expect(formatMoment(MORNING, MORNING + 3_600_000)).toBe("10:15:00");
    expect(formatMoment(MORNING, MORNING + 86_400_000)).toBe("29 Nov 10:15:00");
    expect(formatMoment(MORNING, MORNING + 365 * 86_400_000)).toBe("29 Nov 10:15:00");
  });
});

describe("formatResolution", () => {
  it.each([
    ["1s", "1 s"],
    ["5m", "5 min"],
    ["", ""],
  ])("%s is %s", (text, shown) => expect(formatResolution(text)).toBe(shown));
});

describe("formatDuration", () => {
  it.each([
    [3100, "3.1 s"],
    [42_000, "42 s"],
    [59_700, "1 min"],
    [110_000, "1 min 50 s"],
    [120_000, "2 min"],
    [7_500_000, "2 h 5 min"],
    [273_600_000, "3 d 4 h"],
  ])("%d ms is %s", (ms, text) => expect(formatDuration(ms)).toBe(text));
});

describe("formatAge", () => {
  it("keeps the largest unit", () => {
    expect([3100, 752_000, 7_500_000].map(formatAge)).toEqual(["3.1 s", "12 min", "2 h"]);
  });
});

describe("formatTick", () => {
  it("says seconds only inside a minute", () => {
    expect(formatTick(MORNING, 300_000)).toBe("10:15");
    expect(formatTick(MORNING + 17_000, 1000)).toBe("10:15:17");
    expect(formatTick(MORNING, 86_400_000)).toBe("29 Nov");
  });
});
