import { describe, expect, it } from "vitest";
import { placeEvents } from "./place_events";

const at = (seconds: number, severity = "info") => ({ at: seconds * 1000, severity });

describe("placeEvents", () => {
  it("shows the gravest of those that stand too close", () => {
    const marks = placeEvents([at(11), at(10), at(10.5, "critical"), at(50)], [0, 100_000], 1000);
    expect(marks.map(({ event, more }) => [event.severity, more])).toEqual([
      ["critical", 2],
      ["info", 0],
    ]);
    expect(marks[0]?.labelPx).toBe(394);
  });
  it("turns the label of a mark at the right edge round where there is room for it", () => {
    const flipped = (...seconds: number[]) =>
      placeEvents(
        seconds.map((each) => at(each)),
        [0, 100_000],
        1000,
      ).map((mark) => mark.isFlipped);
    expect(flipped(99)).toEqual([true]);
    expect(flipped(40, 99)).toEqual([false, true]);
    expect(flipped(88, 99)).toEqual([false, false]);
    expect(flipped(40, 70)).toEqual([false, false]);
  });
  it("leaves out what is beside the window", () => {
    expect(placeEvents([at(-1), at(100)], [0, 100_000], 1000)).toEqual([]);
  });
});
