/** Which rows of a long list are in sight. Rows have one height, so this is arithmetic. */

export interface RowSpan {
  first: number;
  last: number;
}

const SPARE_ROWS = 8;

/** Rows [first, last) to draw for a viewport, with some to spare on both sides. */
export function rowsInSight(scrollTop: number, viewportPx: number, rowPx: number, count: number): RowSpan {
  const first = Math.max(0, Math.floor(scrollTop / rowPx) - SPARE_ROWS);
  const last = Math.min(count, Math.ceil((scrollTop + viewportPx) / rowPx) + SPARE_ROWS);
  return { first: Math.min(first, last), last };
}
