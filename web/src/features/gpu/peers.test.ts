import { describe, expect, it } from "vitest";
import type { Gpu } from "../../api/fleet";
import { heatStep, pathOf, siblings } from "./peers";

function gpu(id: string): Gpu {
  const empty = { host: "h", cluster: "c", rack: "", product: "", job: "", team: "", model: "" };
  return { ...empty, id, index: 0, status: "reporting", lastSeen: null, values: {} };
}

describe("heatStep", () => {
  it.each([
    [null, null],
    [undefined, null],
    [12, 0],
    [53.9, 1],
    [54, 2],
    [86, 6],
    [99, 7],
  ])("%s °C is step %s", (celsius, step) => expect(heatStep(celsius)).toBe(step));
});

describe("siblings", () => {
  const peers = ["a", "b", "c"].map(gpu);
  it("goes round at both ends", () => {
    expect(siblings(peers, "a")).toEqual({ before: peers[2], after: peers[1] });
    expect(siblings(peers, "c")).toEqual({ before: peers[1], after: peers[0] });
  });
  it("knows none of a GPU alone, or elsewhere", () => {
    expect(siblings([gpu("a")], "a")).toBe(null);
    expect(siblings(peers, "z")).toBe(null);
  });
});

describe("pathOf", () => {
  it("keeps the window and the view", () => {
    const place = { path: "/gpus/a", search: "range=1h&view=table" };
    expect(pathOf(gpu("b/1"), place)).toBe("/gpus/b%2F1?range=1h&view=table");
  });
});
