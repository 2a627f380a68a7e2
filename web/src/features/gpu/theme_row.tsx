/** One theme: its values in the gutter, the sentence, the chart. */

import { memo, useMemo } from "react";
import { type Catalog, unitOf } from "../../api/fleet";
import { type Cursor, useCursor } from "../../chart/cursor";
import { Plot } from "../../chart/plot";
import { type Cell, newest, rowAt } from "../../model/columns";
import { formatValue } from "../../ui/units";
import type { Theme, ThemeLine } from "./themes";
import { reportedLines, toPicture, toSentence, type View } from "./view";

export interface ThemeRowProps {
  theme: Theme;
  view: View;
  catalog: Catalog | undefined;
  cursor: Cursor;
  onZoom: (span: [number, number]) => void;
  onZoomOut: () => void;
}

function valueAt(view: View, metric: string, at: number | null): Cell {
  const cells = view.columns.values[metric];
  if (at === null) return newest(cells);
  const row = rowAt(view.columns.ts, at, view.slotMs);
  return row === null ? null : (cells?.[row] ?? null);
}

interface GutterLineProps {
  line: ThemeLine;
  view: View;
  catalog: Catalog | undefined;
  at: number | null;
}

function GutterLine({ line, view, catalog, at }: GutterLineProps) {
  return (
    <div className="gutter-line">
      <i style={{ background: `var(--${line.stroke})` }} />
      {line.label}
      <b>{formatValue(valueAt(view, line.metric, at), line.metric, unitOf(catalog, line.metric))}</b>
    </div>
  );
}

function LimitLine({ theme, view, catalog }: Pick<ThemeRowProps, "theme" | "view" | "catalog">) {
  const { limit } = theme;
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
  theme,
  view,
  catalog,
  cursor,
}: Pick<ThemeRowProps, "theme" | "view" | "catalog" | "cursor">) {
  const at = useCursor(cursor);
  return (
    <div className="gutter">
      <h2>{theme.title}</h2>
      {reportedLines(theme, view.columns).map((line) => (
        <GutterLine key={line.metric} line={line} view={view} catalog={catalog} at={at} />
      ))}
      <LimitLine theme={theme} view={view} catalog={catalog} />
    </div>
  );
}

export const ThemeRow = memo(function ThemeRow(props: ThemeRowProps) {
  const { theme, view, catalog, cursor, onZoom, onZoomOut } = props;
  const picture = useMemo(() => toPicture(theme, view, catalog), [theme, view, catalog]);
  const words = useMemo(() => toSentence(theme, view, catalog), [theme, view, catalog]);
  return (
    <section className="theme-row" aria-label={theme.title}>
      <Gutter theme={theme} view={view} catalog={catalog} cursor={cursor} />
      <div className="theme-plot">
        <p className="sentence">{words}</p>
        <Plot
          picture={picture}
          height={theme.heightPx}
          label={`${theme.title}. ${words}`}
          cursor={cursor}
          group="gpu"
          onZoom={onZoom}
          onZoomOut={onZoomOut}
        />
      </div>
    </section>
  );
});
