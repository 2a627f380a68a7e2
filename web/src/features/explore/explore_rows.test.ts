import { describe, expect, it } from "vitest";
import { toldApart } from "./explore_rows";

describe("toldApart", () => {
  it.each([
    [
      ["cedar · n1 · GPU-a", "cedar · n1 · GPU-b"],
      ["GPU-a", "GPU-b"],
    ],
    [
      ["cedar · n1 · GPU-a", "iris · n2 · GPU-a"],
      ["cedar · n1", "iris · n2"],
    ],
    [
      ["cedar · n1 · GPU-a", "cedar · n2 · GPU-b"],
      ["GPU-a", "GPU-b"],
    ],
    [
      ["cedar", "iris · n2"],
      ["cedar", "iris · n2"],
    ],
    [["cedar"], ["cedar"]],
    [
      ["", ""],
      ["", ""],
    ],
  ])("leaves out what all say: %j", (labels, expected) => {
    expect(toldApart(labels)).toEqual(expected);
  });
});
