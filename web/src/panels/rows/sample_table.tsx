/** The same window as rows, newest first. */

import { useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Catalog } from "../../api/fleet";
import { formatClock } from "../../ui/times";
import { formatValue } from "../../ui/units";
import { type RowSpan, rowsInSight } from "../../ui/window_rows";
import { columnOf, type RowLine, type RowSpec, unitOfLine } from "./spec";
import { namedLines, type Timeline } from "./timeline";

const ROW_PX = 24;

export interface SampleTableProps {
  specs: readonly RowSpec[];
  view: Timeline;
  catalog: Catalog | undefined;
}

function tableLines(specs: readonly RowSpec[], view: Timeline): RowLine[] {
  return specs.flatMap((spec) => namedLines(spec, view.columns));
}

export function SampleTable({ specs, view, catalog }: SampleTableProps) {
  const box = useRef<HTMLDivElement>(null);
  const [span, setSpan] = useState<RowSpan>({ first: 0, last: 40 });
  const lines = useMemo(() => tableLines(specs, view), [specs, view]);
  const count = view.columns.ts.length;
  const measure = () => {
    const element = box.current;
    if (element === null) return;
    const next = rowsInSight(element.scrollTop, element.clientHeight, ROW_PX, count);
    setSpan((known) => (known.first === next.first && known.last === next.last ? known : next));
  };
  useLayoutEffect(measure);
  const rows = Array.from(
    { length: Math.max(0, span.last - span.first) },
    (_, at) => count - 1 - span.first - at,
  );
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls has to be reachable by keys
    <section ref={box} className="sample-table" onScroll={measure} tabIndex={0} aria-label="Samples">
      <table>
        <thead>
          <tr>
            <th scope="col">time, UTC</th>
            {lines.map((line) => (
              <th key={columnOf(line)} scope="col">
                {line.head ?? line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <tr aria-hidden="true" style={{ height: span.first * ROW_PX }} />
          {rows.map((row) => (
            <tr key={view.columns.ts[row]}>
              <th scope="row">{formatClock(view.columns.ts[row] ?? 0)}</th>
              {lines.map((line) => (
                <td key={columnOf(line)}>
                  {formatValue(
                    view.columns.values[columnOf(line)]?.[row],
                    line.metric,
                    unitOfLine(line, catalog),
                  )}
                </td>
              ))}
            </tr>
          ))}
          <tr aria-hidden="true" style={{ height: Math.max(0, count - span.last) * ROW_PX }} />
        </tbody>
      </table>
    </section>
  );
}
