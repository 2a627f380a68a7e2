import { describe, expect, it } from "vitest";
import { fixedParams, parseResolution, parseWindow, rangeOf, resolutionFor, widened, zoomed } from "./window";

const FROM = Date.UTC(2026, 10, 29, 10, 15, 0);
const TO = FROM + 1_800_000;

describe("parseWindow", () => {
  it("is fixed by from and to, as RFC 3339 or epoch milliseconds", () => {
    const fixed = { live: false, from: FROM, to: TO };
    expect(parseWindow("from=2026-11-29T10:15:00Z&to=2026-11-29T10:45:00Z", "15m")).toEqual(fixed);
    expect(parseWindow(`from=${FROM}&to=${TO}`, "15m")).toEqual(fixed);
  });
  it("slides by a named range, and by the default where the name is not known", () => {
    expect(parseWindow("range=1h", "15m")).toEqual({ live: true, lengthMs: 3_600_000 });
    expect(parseWindow("range=nonsense", "15m")).toEqual({ live: true, lengthMs: 900_000 });
    expect(parseWindow(`from=${TO}&to=${FROM}`, "5m")).toEqual({ live: true, lengthMs: 300_000 });
  });
  it("survives the way through an address", () => {
    const params = new URLSearchParams(fixedParams(FROM, TO) as Record<string, string>);
    expect(parseWindow(params.toString(), "5m")).toEqual({ live: false, from: FROM, to: TO });
  });
});

describe("zoom", () => {
  it("is never narrower than five seconds", () => {
    expect(zoomed(FROM, FROM + 1000)).toEqual({ from: FROM - 2000, to: FROM + 3000 });
  });
  it("widens around the middle and not beyond the present", () => {
    expect(widened(0, 100, 10_000)).toEqual({ from: -150, to: 250 });
    expect(widened(0, 100, 120)).toEqual({ from: -280, to: 120 });
  });
  it("reads raw seconds up to an hour", () => {
    expect(resolutionFor(3_600_000)).toBe("1s");
    expect(resolutionFor(3_600_001)).toBe("auto");
  });
  it("names the range only while it slides", () => {
    expect(rangeOf({ live: true, lengthMs: 900_000 })).toBe("15m");
    expect(rangeOf({ live: false, from: 0, to: 900_000 })).toBe(null);
  });
});

describe("parseResolution", () => {
  it.each([
    ["1s", 1000],
    ["30s", 30_000],
    ["5m", 300_000],
    ["raw", null],
    ["", null],
  ])("%s is %s ms", (text, ms) => expect(parseResolution(text)).toBe(ms));
});
