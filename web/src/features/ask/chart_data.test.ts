import { describe, expect, it } from "vitest";
import type { WireAskTable } from "../../api/wire";
import { chartOf } from "./chart_data";

function table(columns: string[], keys: string[], rows: WireAskTable["rows"]): WireAskTable {
  const named = columns.map((name) => ({ name, words: name, unit: "", derived: false }));
  return { name: "t", columns: named, keys, rows, truncated: false };
}

describe("chartOf", () => {
  it("draws one line a name over time", () => {
    const rows = [
      ["2026-11-29T10:00:00Z", "cedar", 1],
      ["2026-11-29T10:00:00Z", "iris", 2],
      ["2026-11-29T10:05:00Z", "cedar", 3],
    ];
    const data = chartOf(table(["ts", "cluster", "avg"], ["ts", "cluster"], rows), "line");
    expect(data?.kind === "lines" && data.names).toEqual(["cedar", "iris"]);
    expect(data?.kind === "lines" && data.columns.values["iris"]).toEqual([2, null]);
  });
  it("draws bars by name", () => {
    const data = chartOf(
      table(
        ["host", "watts"],
        ["host"],
        [
          ["a", 5],
          ["b", null],
          ["c", 2],
        ],
      ),
      "bar",
    );
    expect(data?.kind === "bars" && data.bars).toEqual([
      { name: "a", value: 5 },
      { name: "c", value: 2 },
    ]);
  });
  it("draws nothing where one figure says it", () => {
    expect(chartOf(table(["n"], [], [[5]]), "single value")).toBe(null);
    expect(
      chartOf(
        table(
          ["host", "x"],
          ["host"],
          [
            ["a", "b"],
            ["c", "d"],
          ],
        ),
        "bar",
      ),
    ).toBe(null);
  });
});
