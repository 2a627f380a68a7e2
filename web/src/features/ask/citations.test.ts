import { describe, expect, it } from "vitest";
import type { WireAsk, WireAskTable } from "../../api/wire";
import { chipsOf } from "./chips";
import { rowOf, sourceOf } from "./citations";

const column = (name: string) => ({ name, words: name, unit: "", derived: false });
const TABLE: WireAskTable = {
  name: "t",
  columns: [column("cluster_id"), column("mean")],
  keys: ["cluster_id"],
  rows: [
    ["cedar", 71.42],
    ["iris", 1204],
  ],
  truncated: false,
};
const READ = {
  kind: "figures",
  metrics: ["gpu_utilization_ratio"],
  aggregation: ["mean"],
  dimensions: [],
  filter: { cluster_id: ["cedar"] },
  timeRange: {
    from: "2026-11-29T10:00:00.000Z",
    to: "2026-11-29T11:00:00.000Z",
    words: "last hour",
    zone: "UTC",
    assumed: false,
  },
};
const ANSWER = { interpretation: READ } as unknown as WireAsk;

describe("citations", () => {
  it("finds the row of a figure as it is written", () => {
    expect(rowOf(TABLE, "71.4 %")).toBe(0);
    expect(rowOf(TABLE, "1,204 W")).toBe(1);
    expect(rowOf(TABLE, "71.5 %")).toBe(null);
  });
  it("leads to the page of the row, of the same time", () => {
    expect(sourceOf(ANSWER, TABLE, 1)).toBe(
      "/clusters/iris?from=2026-11-29T10:00:00Z&to=2026-11-29T11:00:00Z",
    );
    const single = { ...TABLE, columns: [column("mean")], rows: [[3]] };
    expect(sourceOf(ANSWER, single, 0)).toContain("/explore?from=2026-11-29T10:00:00Z&to=");
  });
});

describe("chipsOf", () => {
  it("offers what each piece may become, as turns in words", () => {
    const chips = chipsOf(ANSWER, ["cedar", "iris"]);
    expect(chips.map(({ name }) => name)).toEqual(["metric", "as", "cluster_id", "time"]);
    expect(chips[2]?.choices).toEqual([{ label: "iris", turn: "only cluster iris" }]);
  });
  it("changes nothing but the time of what is no table of figures", () => {
    const chips = chipsOf({ interpretation: { ...READ, kind: "slow_job" } } as unknown as WireAsk, []);
    expect(chips.filter(({ choices }) => choices.length > 0).map(({ name }) => name)).toEqual(["time"]);
  });
});
