import { expect, it } from "vitest";
import { rowsInSight } from "./window_rows";

it("draws what is in sight and some to spare", () => {
  expect(rowsInSight(0, 240, 24, 10_000)).toEqual({ first: 0, last: 18 });
  expect(rowsInSight(24_000, 240, 24, 10_000)).toEqual({ first: 992, last: 1018 });
});

it("stays inside short lists, also when they shrank under the scroll", () => {
  expect(rowsInSight(0, 240, 24, 3)).toEqual({ first: 0, last: 3 });
  expect(rowsInSight(24_000, 240, 24, 3)).toEqual({ first: 3, last: 3 });
});
