import { describe, expect, it } from "vitest";
import { type Column, nextSort, parseSort, sortRows } from "./table_sort";

interface Row {
  name: string;
  heat: number | null;
}

const COLUMNS: Column<Row>[] = [
  { key: "name", label: "Name", width: "1fr", cell: (row) => row.name, sortBy: (row) => row.name },
  { key: "heat", label: "Heat", width: "1fr", numeric: true, cell: () => "", sortBy: (row) => row.heat },
  { key: "note", label: "Note", width: "1fr", cell: () => "" },
];
const ROWS: Row[] = [
  { name: "host-10", heat: 70 },
  { name: "host-9", heat: null },
  { name: "host-1", heat: 80 },
];
const names = (sort: string) =>
  sortRows(ROWS, COLUMNS, parseSort(sort, { key: "name", descending: false })).map((row) => row.name);

describe("sortRows", () => {
  it("counts numbers inside names", () => expect(names("")).toEqual(["host-1", "host-9", "host-10"]));
  it("puts what is missing last either way", () => {
    expect(names("heat")).toEqual(["host-10", "host-1", "host-9"]);
    expect(names("-heat")).toEqual(["host-1", "host-10", "host-9"]);
  });
  it("keeps the order where a column cannot be sorted", () => {
    expect(names("note")).toEqual(["host-10", "host-9", "host-1"]);
  });
});

describe("nextSort", () => {
  it("descends first for numbers and turns round after", () => {
    const [name, heat] = COLUMNS as [Column<Row>, Column<Row>];
    expect(nextSort({ key: "name", descending: false }, heat)).toBe("-heat");
    expect(nextSort({ key: "heat", descending: true }, heat)).toBe("heat");
    expect(nextSort({ key: "heat", descending: true }, name)).toBe("name");
  });
});
