/** Sort rows of a table as an address says it. */

import type { ReactNode } from "react";

export type Sortable = number | string | null;

export interface Column<T> {
  key: string;
  label: string;
  /** Track of the grid: "minmax(120px, 2fr)", "84px". */
  width: string;
  numeric?: boolean;
  /** Its share where there is little room; else the least of its width. */
  narrow?: number;
  /** Left out where there is little room. */
  wide?: boolean;
  cell: (row: T) => ReactNode;
  /** What rows are ordered by; a column without it cannot be sorted. Null comes last either way. */
  sortBy?: (row: T) => Sortable;
}

export interface Sort {
  key: string;
  descending: boolean;
}

/** Sort that an address asks for: "-temperature" descends. */
export function parseSort(text: string | null, otherwise: Sort): Sort {
  if (text === null || text === "") return otherwise;
  const descending = text.startsWith("-");
  return { key: descending ? text.slice(1) : text, descending };
}

/** What an address says after a press on a column: numbers descend first, a second press turns round. */
export function nextSort<T>(sort: Sort, column: Column<T>): string {
  const descending = sort.key === column.key ? !sort.descending : column.numeric === true;
  return `${descending ? "-" : ""}${column.key}`;
}

let natural: Intl.Collator | undefined;

/** Names as people order them: "host-9" before "host-10". */
export function compareNames(a: string, b: string): number {
  natural ??= new Intl.Collator("en", { numeric: true });
  return natural.compare(a, b);
}

function compare(a: number | string, b: number | string): number {
  return typeof a === "number" && typeof b === "number" ? a - b : compareNames(String(a), String(b));
}

/** Rows in order; what is missing comes last either way, equals keep the order that they came in. */
export function sortRows<T>(rows: readonly T[], columns: readonly Column<T>[], sort: Sort): readonly T[] {
  const sortBy = columns.find((column) => column.key === sort.key)?.sortBy;
  if (sortBy === undefined) return rows;
  const direction = sort.descending ? -1 : 1;
  const keyed = rows.map((row) => ({ row, value: sortBy(row) }));
  keyed.sort((a, b) => {
    if (a.value === null || b.value === null) return Number(a.value === null) - Number(b.value === null);
    return direction * compare(a.value, b.value);
  });
  return keyed.map(({ row }) => row);
}
