import { describe, expect, it } from "vitest";
import { decodeBytes, placed, valueOfByte } from "./map";

describe("frames of one byte a GPU", () => {
  it("divide the range evenly, and 0 is no value", () => {
    const bytes = decodeBytes(btoa(String.fromCharCode(0, 1, 128, 255)));
    const values = [...bytes].map((byte) => valueOfByte({ low: 20, high: 20 + 254 }, byte));
    expect(values).toEqual([null, 20, 147, 274]);
  });
  it("are of the same GPUs for as long as their layout has the same name", () => {
    const cell = { tenantId: "t", clusterId: "c", rack: "r", hostId: "h", gpuId: "g", index: 0 };
    const first = placed({ layout: "a", cells: [cell] });
    expect(placed({ layout: "a", cells: null })).toBe(first);
    expect(placed({ layout: "a", cells: [cell] })).toBe(first);
    expect(placed({ layout: "b", cells: null })).toBe(null);
  });
  it("are of the same GPUs whether each is named by itself or those of a host together", () => {
    const place = { tenantId: "t", clusterId: "c", rack: "r", hostId: "h" };
    const cells = [
      { ...place, gpuId: "g0", index: 0 },
      { ...place, gpuId: "g1", index: null },
    ];
    const hosts = [{ ...place, gpuIds: ["g0", "g1"], indexes: [0, null] }];
    expect(placed({ layout: "by host", cells: null, hosts })).toEqual(placed({ layout: "by cell", cells }));
  });
});
