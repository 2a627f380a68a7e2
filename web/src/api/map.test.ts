import { describe, expect, it } from "vitest";
import { decodeFrame } from "./map";

describe("decodeFrame", () => {
  it("divides the range evenly, and 0 is no value", () => {
    const frame = btoa(String.fromCharCode(0, 1, 128, 255));
    expect(decodeFrame(frame, 20, 20 + 254)).toEqual([null, 20, 147, 274]);
  });
});
