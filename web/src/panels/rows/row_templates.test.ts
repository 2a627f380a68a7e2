import { describe, expect, it } from "vitest";
import type { Series } from "../../api/grouped";
import { fillRows, type RowTemplate } from "./row_templates";

const ROW: RowTemplate = {
  title: "Network",
  heightPx: 48,
  y: { kind: "share" },
  noise: 1,
  lines: [{ metric: "node_network_io_bytes_total", label: "" }],
};

function series(part: string): Series {
  const label = `cedar · host-1 · ${part}`;
  return {
    column: `node_network_io_bytes_total\nrate\n${label}`,
    metric: "node_network_io_bytes_total",
    aggregate: "rate",
    unit: "By/s",
    label,
    gpu: "",
    host: "host-1",
  };
}

describe("fillRows", () => {
  it("names lines by what tells their parts apart", () => {
    const [row] = fillRows(
      [ROW],
      [series("device=b0,direction=receive"), series("device=b0,direction=transmit")],
    );
    expect(row?.lines.map((line) => [line.label, line.stroke])).toEqual([
      ["b0 receive", "s1"],
      ["b0 transmit", "s2"],
    ]);
  });
  it("leaves out rows that nothing fills", () => expect(fillRows([ROW], [])).toEqual([]));
});
