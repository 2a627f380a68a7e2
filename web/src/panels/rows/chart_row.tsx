/** One row of a time line: its values in the gutter, the sentence, the chart. */

import { memo, useMemo } from "react";
import { type Catalog, unitOf } from "../../api/fleet";
import { type Cursor, useCursor } from "../../chart/cursor";
import { Plot } from "../../chart/plot";
import { type Cell, newest, rowAt } from "../../model/columns";
import { formatValue } from "../../ui/units";
import { columnOf, type RowLine, type RowSpec, unitOfLine } from "./spec";
import { namedLines, type Timeline, toPicture, toSentence } from "./timeline";

const BETWEEN = " · ";

export interface ChartRowProps {
  spec: RowSpec;
  view: Timeline;
  catalog: Catalog | undefined;
  cursor: Cursor;
  onZoom: (span: [number, number]) => void;
  onZoomOut: () => void;
}

function valueAt(view: Timeline, column: string, at: number | null): Cell {
  const cells = view.columns.values[column];
  if (at === null) return newest(cells);
  const row = rowAt(view.columns.ts, at, view.slotMs);
  return row === null ? null : (cells?.[row] ?? null);
}

interface GutterLineProps {
  line: RowLine;
  view: Timeline;
  catalog: Catalog | undefined;
  at: number | null;
}

/** A name that is cut, where it has to be, before its last piece, as names of one place begin alike. */
function Name({ label }: { label: string }) {
  const at = label.lastIndexOf(BETWEEN);
  if (at < 0) return <span title={label}>{label}</span>;
  return (
    <span className="parted" title={label}>
      <span>{label.slice(0, at)}</span>
      <span>
        {BETWEEN}
        {label.slice(at + BETWEEN.length)}
      </span>
    </span>
  );
}

function GutterLine({ line, view, catalog, at }: GutterLineProps) {
  return (
    <div className="gutter-line">
      <i style={{ background: `var(--${line.stroke})` }} />
      <Name label={line.label} />
      <b>{formatValue(valueAt(view, columnOf(line), at), line.metric, unitOfLine(line, catalog))}</b>
    </div>
  );
}

function LimitLine({ spec, view, catalog }: Pick<ChartRowProps, "spec" | "view" | "catalog">) {
  const { limit } = spec;
  const value = limit === undefined ? null : newest(view.columns.values[limit.metric]);
  if (limit === undefined || value === null) return null;
  return (
    <div className="gutter-line">
      <i className="limit" />
      {limit.label}
      <b>{formatValue(value, limit.metric, unitOf(catalog, limit.metric))}</b>
    </div>
  );
}

function Gutter({
  spec,
  view,
  catalog,
  cursor,
}: Pick<ChartRowProps, "spec" | "view" | "catalog" | "cursor">) {
  const at = useCursor(cursor);
  return (
    <div className="gutter">
      <h2>{spec.title}</h2>
      {namedLines(spec, view.columns).map((line) => (
        <GutterLine key={columnOf(line)} line={line} view={view} catalog={catalog} at={at} />
      ))}
      <LimitLine spec={spec} view={view} catalog={catalog} />
    </div>
  );
}

export const ChartRow = memo(function ChartRow(props: ChartRowProps) {
  const { spec, view, catalog, cursor, onZoom, onZoomOut } = props;
  const picture = useMemo(() => toPicture(spec, view, catalog), [spec, view, catalog]);
  const words = useMemo(() => toSentence(spec, view, catalog), [spec, view, catalog]);
  return (
    <section className="theme-row" aria-label={spec.title}>
      <Gutter spec={spec} view={view} catalog={catalog} cursor={cursor} />
      <div className="theme-plot">
        <p className="sentence">{words}</p>
        <Plot
          picture={picture}
          height={spec.heightPx}
          label={`${spec.title}. ${words}`}
          cursor={cursor}
          group="timeline"
          onZoom={onZoom}
          onZoomOut={onZoomOut}
        />
      </div>
    </section>
  );
});
