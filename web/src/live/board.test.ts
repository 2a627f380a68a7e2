import { describe, expect, it } from "vitest";
import { behindNow } from "../api/map";
import { afterDelta, fromSnapshot, stepped, type WireBoard } from "./board";

const text = (...bytes: number[]) => btoa(String.fromCharCode(...bytes));
const cell = (index: number) => ({
  tenantId: "t",
  clusterId: "c",
  rack: "r",
  hostId: "h",
  gpuId: `g${index}`,
  index,
});
const SNAPSHOT: WireBoard = {
  at: "2026-11-29T10:00:00.000Z",
  behindMs: 2000,
  layout: "l",
  cells: [cell(0), cell(1), cell(2)],
  frames: {
    watts: { low: 0, high: 1024, frame: text(1, 2, 3) },
    use: { low: 0, high: 1, frame: text(9, 9, 9) },
  },
  sums: { watts: { count: 3, sum: 6, max: 3, cell: 2 } },
};

describe("boards", () => {
  it("hold every second as its changes say", () => {
    const first = fromSnapshot(SNAPSHOT);
    if (first === null) throw new Error("no board");
    const next = afterDelta(first, {
      at: "2026-11-29T10:00:01.000Z",
      behindMs: 7000,
      frames: { watts: { steps: text(1, 8) } },
      sums: {},
    });
    expect(next.at - first.at).toBe(1000);
    expect(behindNow(first.lag, first.lag.toldAt + 500)).toBe(2500);
    expect(behindNow(next.lag, next.lag.toldAt - 500)).toBe(7000);
    expect([...(next.frames.get("watts")?.bytes ?? [])]).toEqual([1, 8, 3]);
    expect([...(first.frames.get("watts")?.bytes ?? [])]).toEqual([1, 2, 3]);
    expect(next.frames.get("use")).toBe(first.frames.get("use"));
    expect(next.cells).toBe(first.cells);
  });
  it("begin with cells that are known, or not at all", () => {
    expect(fromSnapshot({ ...SNAPSHOT, cells: null })?.cells).toHaveLength(3);
    expect(fromSnapshot({ ...SNAPSHOT, layout: "never named", cells: null })).toBe(null);
  });
  it("pass over more cells than a byte counts", () => {
    const next = stepped(new Uint8Array(600), Uint8Array.of(255, 255, 4, 7, 0, 8));
    expect([next[514], next[515]]).toEqual([7, 8]);
  });
});
