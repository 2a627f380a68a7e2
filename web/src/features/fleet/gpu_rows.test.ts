import { describe, expect, it } from "vitest";
import type { Gpu } from "../../api/fleet";
import { COLUMNS, filterGpus, nextSort, parseSort, sortGpus } from "./gpu_rows";

function gpu(host: string, index: number, temperature: number | null, over: Partial<Gpu> = {}): Gpu {
  return {
    id: `GPU-${host}-${index}`,
    host,
    cluster: "cedar",
    rack: "r1",
    index,
    product: "H100",
    job: "",
    team: "",
    model: "",
    status: "reporting",
    lastSeen: 0,
    values: { gpu_temperature_celsius: temperature },
    ...over,
  };
}

const GPUS = [
  gpu("node-10", 0, 60),
  gpu("node-2", 0, 86),
  gpu("node-2", 1, null, { status: "lost", cluster: "iris" }),
];

function names(gpus: readonly Gpu[]): string[] {
  return gpus.map((one) => `${one.host}/${one.index}`);
}

describe("sortGpus", () => {
  it("puts the worst first without being asked", () => {
    expect(names(sortGpus(GPUS, parseSort(null)))).toEqual(["node-2/1", "node-2/0", "node-10/0"]);
  });
  it("sorts names as people count", () => {
    expect(names(sortGpus(GPUS, parseSort("gpu")))).toEqual(["node-2/0", "node-2/1", "node-10/0"]);
  });
  it("puts what is missing last, whichever way", () => {
    expect(names(sortGpus(GPUS, parseSort("-temperature")))).toEqual(["node-2/0", "node-10/0", "node-2/1"]);
    expect(names(sortGpus(GPUS, parseSort("temperature")))).toEqual(["node-10/0", "node-2/0", "node-2/1"]);
  });
});

describe("filterGpus", () => {
  it("wants every word somewhere", () => {
    expect(names(filterGpus(GPUS, "node-2 cedar"))).toEqual(["node-2/0"]);
    expect(names(filterGpus(GPUS, "LOST"))).toEqual(["node-2/1"]);
    expect(filterGpus(GPUS, "  ")).toHaveLength(3);
  });
});

describe("nextSort", () => {
  it("descends numbers first, then turns round", () => {
    const column = COLUMNS.find((candidate) => candidate.key === "power");
    if (column === undefined) throw new Error("no such column");
    expect(nextSort(parseSort("gpu"), column)).toBe("-power");
    expect(nextSort(parseSort("-power"), column)).toBe("power");
  });
});
