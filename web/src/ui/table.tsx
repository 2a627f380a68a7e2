/** A table of any length: virtual, sortable, one line a row; the first cell leads on, and so does the row. */

import { type CSSProperties, type MouseEvent, memo, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Icon } from "./icon";
import { useNarrow } from "./narrow";
import { Link, navigate } from "./navigation";
import { type Column, nextSort, type Sort, sortRows } from "./table_sort";
import { type RowSpan, rowsInSight } from "./window_rows";

const ROW_PX = 28;
const TOUCH_ROW_PX = 44;

export interface TableProps<T> {
  label: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  keyOf: (row: T) => string;
  /** Where a row leads; undefined leads nowhere. */
  linkOf?: (row: T) => string | undefined;
  sort: Sort;
  onSort?: (sort: string) => void;
  /** Rows beyond this height scroll; "page" takes what the window has. */
  height: number | "page";
  /** What stands there where no row is. */
  none: string;
  classOf?: (row: T) => string;
}

function useRows(count: number, rowPx: number) {
  const box = useRef<HTMLDivElement>(null);
  const [span, setSpan] = useState<RowSpan>({ first: 0, last: 40 });
  const measure = () => {
    const element = box.current;
    if (element === null) return;
    const next = rowsInSight(element.scrollTop, element.clientHeight, rowPx, count);
    setSpan((known) => (known.first === next.first && known.last === next.last ? known : next));
  };
  useLayoutEffect(measure);
  return { box, span, measure };
}

function ariaSort<T>(sort: Sort, column: Column<T>): "ascending" | "descending" | "none" {
  if (sort.key !== column.key) return "none";
  return sort.descending ? "descending" : "ascending";
}

/** Where there is little room columns share it as their widths ask, and none is wider than its share. */
function narrowTrack<T>(column: Column<T>): string {
  return `minmax(0, ${column.narrow ?? /\d+/.exec(column.width)?.[0] ?? "100"}fr)`;
}

function cellClass<T>(column: Column<T>): string {
  return column.numeric === true ? `c-${column.key} numeric` : `c-${column.key}`;
}

function HeadCell<T>({
  column,
  sort,
  onSort,
}: {
  column: Column<T>;
  sort: Sort;
  onSort: ((sort: string) => void) | undefined;
}) {
  const arrow = sort.key === column.key && <Icon name={sort.descending ? "down" : "up"} size={12} />;
  if (onSort === undefined || column.sortBy === undefined) {
    return (
      // biome-ignore lint/a11y/useFocusableInteractive: nothing to press here
      <div role="columnheader" className={cellClass(column)}>
        {column.label}
      </div>
    );
  }
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: the button inside is what one focuses
    <div role="columnheader" aria-sort={ariaSort(sort, column)} className={cellClass(column)}>
      <button type="button" onClick={() => onSort(nextSort(sort, column))}>
        <span>{column.label}</span>
        {arrow}
      </button>
    </div>
  );
}

function Cell<T>({ column, row, to }: { column: Column<T>; row: T; to: string | undefined }) {
  const inside = column.cell(row);
  return (
    <div role="cell" className={cellClass(column)}>
      {to === undefined ? inside : <Link to={to}>{inside}</Link>}
    </div>
  );
}

interface RowProps<T> {
  row: T;
  index: number;
  columns: readonly Column<T>[];
  linkOf: ((row: T) => string | undefined) | undefined;
  className: string;
}

function TableRow<T>({ row, index, columns, linkOf, className }: RowProps<T>) {
  const to = linkOf?.(row);
  const open = (event: MouseEvent) => {
    const isControl = event.target instanceof Element && event.target.closest("a, button") !== null;
    if (to !== undefined && !isControl && getSelection()?.toString() === "") navigate(to);
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the link in the first cell is the way for keys
    // biome-ignore lint/a11y/useFocusableInteractive: the link in the first cell is what one focuses
    <div role="row" className={className} aria-rowindex={index + 2} onClick={open}>
      {columns.map((column, at) => (
        <Cell key={column.key} column={column} row={row} to={at === 0 ? to : undefined} />
      ))}
    </div>
  );
}

/** Rows that stay are not made again while one scrolls. */
const Row = memo(TableRow) as typeof TableRow;

function NoRow({ none }: { none: string }) {
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: a remark, nothing to do here
    <div role="row" className="t-none">
      <div role="cell">{none}</div>
    </div>
  );
}

export function Table<T>(props: TableProps<T>) {
  const { label, rows, columns, keyOf, linkOf, sort, onSort, height, none, classOf } = props;
  const narrow = useNarrow();
  const rowPx = narrow ? TOUCH_ROW_PX : ROW_PX;
  const shownColumns = useMemo(
    () => (narrow ? columns.filter((column) => column.wide !== true) : columns),
    [columns, narrow],
  );
  const shown = useMemo(() => sortRows(rows, columns, sort), [rows, columns, sort]);
  const { box, span, measure } = useRows(shown.length, rowPx);
  const above = Math.min(span.first, shown.length);
  const below = Math.max(0, shown.length - span.last);
  const style = {
    "--tracks": shownColumns.map((column) => (narrow ? narrowTrack(column) : column.width)).join(" "),
    "--row-height": `${rowPx}px`,
  } as CSSProperties;
  const scrolls = height === "page" || shown.length * rowPx > height;
  return (
    <div role="table" className="table" aria-label={label} aria-rowcount={shown.length + 1} style={style}>
      {/* biome-ignore lint/a11y/useFocusableInteractive: the buttons inside are what one focuses */}
      <div role="row" className={scrolls ? "t-head scrolls" : "t-head"} aria-rowindex={1}>
        {shownColumns.map((column) => (
          <HeadCell key={column.key} column={column} sort={sort} onSort={onSort} />
        ))}
      </div>
      <div
        ref={box}
        role="rowgroup"
        className={`t-rows${height === "page" ? " page" : ""}${scrolls ? " scrolls" : ""}`}
        style={height === "page" ? undefined : { maxHeight: height }}
        onScroll={measure}
        // A list without links has nothing else that keys could scroll it by.
        tabIndex={scrolls && linkOf === undefined ? 0 : -1}
      >
        <div role="presentation" style={{ paddingTop: above * rowPx, paddingBottom: below * rowPx }}>
          {shown.slice(span.first, span.last).map((row, offset) => (
            <Row
              key={keyOf(row)}
              row={row}
              index={span.first + offset}
              columns={shownColumns}
              linkOf={linkOf}
              className={classOf === undefined ? "t-row" : `t-row ${classOf(row)}`}
            />
          ))}
          {shown.length === 0 && <NoRow none={none} />}
        </div>
      </div>
    </div>
  );
}
