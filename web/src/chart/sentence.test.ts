import { describe, expect, it } from "vitest";
import { type Facts, median, sentence, type Words } from "./sentence";

const WORDS: Words = {
  value: (value) => `${Math.round(value)} %`,
  clock: (ms) => `${ms / 1000} s`,
  duration: (ms) => `${ms / 1000} s`,
};

function facts(values: Facts["values"]): Facts {
  return { label: "SM active", ts: values.map((_, index) => index * 1000), values, slotMs: 1000, noise: 10 };
}

describe("sentence", () => {
  it("names the level and the deepest dip with its start and length", () => {
    const text = sentence(facts([94, 95, 94, 70, 61, 65, 94, 95, 94, 95]), WORDS);
    expect(text).toBe("SM active median 94 %, fell to 61 % at 3 s for 3 s.");
  });
  it("names a rise", () => {
    expect(sentence(facts([20, 20, 90, 20]), WORDS)).toBe(
      "SM active median 20 %, rose to 90 % at 2 s for 1 s.",
    );
  });
  it("calls it steady where nothing moved by more than noise", () => {
    expect(sentence(facts([94, 95, 91]), WORDS)).toBe("SM active median 94 %, steady.");
  });
  it("says so where nothing is there, and ends a run at a missing value", () => {
    expect(sentence(facts([null, null]), WORDS)).toBe("SM active: nothing reported in this window.");
    expect(sentence(facts([90, 90, 90, 10, null, 10]), WORDS)).toContain("for 1 s");
  });
});

describe("median", () => {
  it("is the nearest rank", () => {
    expect(median([3, 1, 2, null])).toBe(2);
    expect(median([])).toBe(null);
  });
});
