/** A table of whatever columns an answer has; figures stand at the right. */

import { useMemo, useState } from "react";
import { Table } from "./table";
import { type Column, parseSort } from "./table_sort";
import { formatNumber, unitWord } from "./units";

/** A cell as JSON gives it. */
export type Value = unknown;

export interface RowsTableProps {
  label: string;
  columns: readonly { name: string; words: string; unit: string }[];
  rows: readonly (readonly Value[])[];
  height: number;
}

interface Row {
  at: number;
  cells: readonly Value[];
}

const AS_CAME = { key: "", descending: false };

export function sayValue(value: Value): string {
  if (value === null || value === undefined) return "–";
  if (value === "") return "(none)";
  if (typeof value === "number") {
    return formatNumber(value, Number.isInteger(value) ? 0 : Math.abs(value) < 10 ? 3 : 1);
  }
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function sortable(value: Value): number | string | null {
  if (value === null || value === undefined) return null;
  return typeof value === "number" ? value : String(value);
}

export function RowsTable({ label, columns, rows, height }: RowsTableProps) {
  const [sort, setSort] = useState("");
  const keyed = useMemo(() => rows.map((cells, at): Row => ({ at, cells })), [rows]);
  const shown = useMemo(
    () =>
      columns.map((column, at): Column<Row> => {
        const isNumeric = rows.some((cells) => typeof cells[at] === "number");
        return {
          key: column.name,
          label: [column.words, unitWord(column.unit)].filter(Boolean).join(", "),
          width: "minmax(88px, 1fr)",
          numeric: isNumeric,
          wide: at > 2,
          cell: (row) => sayValue(row.cells[at]),
          sortBy: (row) => sortable(row.cells[at]),
        };
      }),
    [columns, rows],
  );
  return (
    <Table
      label={label}
      rows={keyed}
      columns={shown}
      keyOf={(row) => String(row.at)}
      sort={parseSort(sort, AS_CAME)}
      onSort={setSort}
      height={height}
      none="No row answers this."
    />
  );
}
