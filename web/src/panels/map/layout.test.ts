import { describe, expect, it } from "vitest";
import { gpuAt, gpuBeside, gpusIn, layoutMap, type MapGpu } from "./layout";

function fleet(clusters: number, racks: number, hosts: number): MapGpu[] {
  const gpus: MapGpu[] = [];
  for (let c = 0; c < clusters; c += 1)
    for (let r = 0; r < racks; r += 1)
      for (let h = 0; h < hosts; h += 1)
        for (let index = 0; index < 8; index += 1)
          gpus.push({
            id: `${c}-${r}-${h}-${index}`,
            cluster: `c${c}`,
            rack: `r${r}`,
            host: `c${c}r${r}h${h}`,
            index,
          });
  return gpus;
}

describe("layoutMap", () => {
  it("labels cells of a small fleet", () => {
    const map = layoutMap(fleet(2, 1, 4), 1000, 280, false);
    expect(map.labelled).toBe(true);
    expect(map.width).toBeLessThanOrEqual(1000);
  });
  it.each([
    [5, 31, 1100],
    [3, 4, 600],
  ])("fits %d clusters of %d racks into %d px, no cell on another", (clusters, racks, width) => {
    const gpus = fleet(clusters, racks, 8);
    const map = layoutMap(gpus, width, 280, false);
    expect(map.width).toBeLessThanOrEqual(width);
    expect(map.height).toBeLessThanOrEqual(280);
    expect(new Set(gpus.map((_, at) => `${map.xs[at]} ${map.ys[at]}`)).size).toBe(gpus.length);
  });
  it("stands clusters below each other where there is little width", () => {
    const map = layoutMap(fleet(3, 20, 8), 340, 700, true);
    const [first, second] = map.clusters;
    expect(second?.y).toBeGreaterThan((first?.y ?? 0) + (first?.height ?? 0));
    expect(map.width).toBeLessThanOrEqual(340);
  });
  it("shows a fleet that fits nowhere in the smallest cells", () => {
    expect(layoutMap(fleet(1, 200, 8), 100, 50, false).cellWidth).toBe(1);
  });
});

describe("finding cells", () => {
  const gpus = fleet(2, 2, 2);
  const map = layoutMap(gpus, 1000, 280, false);
  it("finds the cell under a point, and none beside", () => {
    expect(gpuAt(map, (map.xs[9] ?? 0) + 2, (map.ys[9] ?? 0) + 2)).toBe(9);
    expect(gpuAt(map, 2, 2)).toBe(null);
  });
  it("walks by arrows, and stays at the edge", () => {
    expect(gpuBeside(map, 0, "ArrowRight")).toBe(1);
    expect(gpuBeside(map, 0, "ArrowDown")).toBe(8);
    expect(gpuBeside(map, 0, "ArrowLeft")).toBe(0);
  });
  it("selects what an area touches", () => {
    const [x, y] = [map.xs[0] ?? 0, map.ys[0] ?? 0];
    expect(gpusIn(map, { x, y, width: map.cellWidth * 2, height: 2 })).toEqual([0, 1]);
  });
});
