/** Four bands of the whole fleet: average, 95th percentile, extremes. */

import { useQueries, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { type Catalog, unitOf } from "../../api/fleet";
import { type Answer, align, type Band, bandName, fleetSeriesQuery } from "../../api/series";
import { spreadLabels, type YRange } from "../../chart/axis";
import { type Cursor, createCursor, useCursor } from "../../chart/cursor";
import { GUTTER_PX, type Line, type Picture, plotBounds } from "../../chart/options";
import { Plot } from "../../chart/plot";
import { TimeAxis } from "../../chart/time_axis";
import { breakAtGaps, type Columns, findGaps, newest, rowAt } from "../../model/columns";
import { parseResolution, type Window } from "../../model/window";
import { toFailure } from "../../ui/failure";
import { Badge, ErrorState, Skeleton } from "../../ui/states";
import { formatClock, formatTick } from "../../ui/times";
import { formatNumber, formatTicks, formatValue, scaleFor } from "../../ui/units";

const HEIGHT_PX = 104;
const LABEL_GAP_PX = 13;
const AGGREGATES: readonly Band[] = ["avg", "min", "max", "p95"];

interface Theme {
  metric: string;
  title: string;
  y: YRange;
}

const THEMES: readonly Theme[] = [
  { metric: "gpu_utilization_ratio", title: "Utilisation", y: { kind: "share" } },
  { metric: "gpu_power_watts", title: "Power a GPU", y: { kind: "zero", atLeast: 0 } },
  { metric: "gpu_temperature_celsius", title: "Temperature", y: { kind: "tight", step: 15 } },
  {
    metric: "gpu_memory_used_bytes",
    title: "Memory used",
    y: { kind: "zero", atLeast: 2 ** 30, base: 2 ** 30 },
  },
];

const LINES: readonly Line[] = [
  { column: "max", stroke: "s1", width: 0.75, bandTo: "min" },
  { column: "p95", stroke: "s1", width: 1, dash: [1, 3] },
  { column: "avg", stroke: "s1", width: 1.5 },
  { column: "min", stroke: "s1", width: 0.75 },
];

/** What is asked at once: percentiles are made of seconds and take longer, so the rest does not wait for them. */
const REQUESTS: readonly (readonly Band[])[] = [["avg", "min", "max"], ["p95"]];

/** The aggregates of one metric as columns named by aggregate. */
function bandColumns(metric: string, answers: readonly (Answer | undefined)[]): Columns {
  const parts = answers.map((answer, index) => ({
    ts: answer?.columns.ts ?? [],
    values: Object.fromEntries(
      (REQUESTS[index] ?? []).map((name) => [name, answer?.columns.values[bandName(metric, name)] ?? []]),
    ),
  }));
  return align(parts);
}

interface BandProps {
  theme: Theme;
  answers: readonly (Answer | undefined)[];
  catalog: Catalog | undefined;
  cursor: Cursor;
  onZoom: (span: [number, number]) => void;
  onZoomOut: () => void;
}

function useBandPicture({ theme, answers, catalog }: BandProps): {
  picture: Picture;
  columns: Columns;
  slot: number;
} {
  const unit = unitOf(catalog, theme.metric);
  return useMemo(() => {
    const [average] = answers;
    const columns = bandColumns(theme.metric, answers);
    const slot = parseResolution(average?.meta.resolution ?? "") ?? 1000;
    const from = average?.from ?? 0;
    const gaps = findGaps(columns.ts, slot, Math.max(from, average?.meta.expectedFrom ?? 0));
    const picture: Picture = {
      columns: breakAtGaps(columns, gaps),
      lines: LINES,
      x: [from, average?.to ?? 1],
      y: theme.y,
      hold: [],
      gaps,
      completeThrough: average?.meta.completeThrough ?? null,
      staleSince: null,
      limit: null,
      ticks: (values) => formatTicks(values, theme.metric, unit),
    };
    return { picture, columns, slot };
  }, [theme, answers, unit]);
}

function valueAt(columns: Columns, name: string, at: number | null, slot: number): number | null {
  if (at === null) return newest(columns.values[name]);
  const row = rowAt(columns.ts, at, slot);
  return row === null ? null : (columns.values[name]?.[row] ?? null);
}

function EndLabels({ picture, theme, unit }: { picture: Picture; theme: Theme; unit: string }) {
  const [low, high] = plotBounds(picture);
  const inner = HEIGHT_PX - GUTTER_PX.top - GUTTER_PX.bottom;
  const labels = AGGREGATES.flatMap((name) => {
    const value = newest(picture.columns.values[name]);
    if (value === null) return [];
    return [{ name, value, y: GUTTER_PX.top + (1 - (value - low) / (high - low)) * inner }];
  });
  const largest = labels.reduce((most, { value }) => Math.max(most, Math.abs(value)), 0);
  const { divide } = scaleFor(theme.metric, unit, largest);
  const digits = largest / divide >= 20 ? 0 : 1;
  const texts = new Map(
    labels.map(({ name, value }) => [name as string, formatNumber(value / divide, digits)]),
  );
  return (
    <div className="band-labels" aria-hidden="true">
      {spreadLabels(labels, LABEL_GAP_PX, HEIGHT_PX - 4).map((label) => (
        <span key={label.name} className={label.name} style={{ top: label.y }}>
          {label.name} {texts.get(label.name)}
        </span>
      ))}
    </div>
  );
}

function BandHead(props: { theme: Theme; columns: Columns; slot: number; cursor: Cursor; unit: string }) {
  const { theme, columns, slot, cursor, unit } = props;
  const at = useCursor(cursor);
  return (
    <div className="panel-head">
      <h2>{theme.title}</h2>
      <span className="band-value">
        {at !== null && <small>{formatClock(at)}</small>}
        <b>{formatValue(valueAt(columns, "avg", at, slot), theme.metric, unit)}</b>
      </span>
    </div>
  );
}

function BandPanel(props: BandProps) {
  const { theme, catalog, cursor, onZoom, onZoomOut } = props;
  const { picture, columns, slot } = useBandPicture(props);
  const unit = unitOf(catalog, theme.metric);
  const told = AGGREGATES.map(
    (name) => `${name} ${formatValue(newest(columns.values[name]), theme.metric, unit)}`,
  );
  return (
    <section className="panel band" aria-label={theme.title}>
      <BandHead theme={theme} columns={columns} slot={slot} cursor={cursor} unit={unit} />
      <div className="band-plot">
        <div>
          <Plot
            picture={picture}
            height={HEIGHT_PX}
            label={`${theme.title} of the fleet: ${told.join(", ")}`}
            cursor={cursor}
            group="fleet"
            onZoom={onZoom}
            onZoomOut={onZoomOut}
          />
          <TimeAxis x={picture.x} cursor={cursor} tick={formatTick} clock={formatClock} />
        </div>
        <EndLabels picture={picture} theme={theme} unit={unit} />
      </div>
    </section>
  );
}

export interface BandsProps {
  /** The summary comes first; the bands wait for it. */
  ready: boolean;
  window: Window;
  catalog: Catalog | undefined;
  onZoom: (span: [number, number]) => void;
  onZoomOut: () => void;
}

const METRICS = THEMES.map((theme) => theme.metric);

/** The answers of both requests; all metrics come in one each. */
function useBands(window: Window, ready: boolean) {
  const client = useQueryClient();
  return useQueries({
    queries: REQUESTS.map((aggregates) => ({
      ...fleetSeriesQuery({ metrics: METRICS, aggregates, window }, client),
      enabled: ready,
    })),
    combine: (results) => ({
      answers: results.map((result) => result.data),
      error: results.find((result) => result.error !== null)?.error ?? null,
      retry: () => results.forEach((result) => void result.refetch()),
    }),
  });
}

function Placeholders() {
  return THEMES.map((theme) => (
    <section key={theme.metric} className="panel band" aria-label={theme.title}>
      <div className="panel-head">
        <h2>{theme.title}</h2>
      </div>
      <Skeleton height={HEIGHT_PX + 20} waitsFor="the rollups of the fleet" />
    </section>
  ));
}

export function Bands({ ready, window, catalog, onZoom, onZoomOut }: BandsProps) {
  const { answers, error, retry } = useBands(window, ready);
  const [cursor] = useState(createCursor);
  const [average] = answers;
  if (average === undefined) {
    if (error === null) return <div className="bands">{Placeholders()}</div>;
    return (
      <section className="panel bands-failed">
        <ErrorState failure={toFailure(error)} onRetry={retry} />
      </section>
    );
  }
  return (
    <div className="bands">
      {THEMES.map((theme) => (
        <BandPanel
          key={theme.metric}
          theme={theme}
          answers={answers}
          catalog={catalog}
          cursor={cursor}
          onZoom={onZoom}
          onZoomOut={onZoomOut}
        />
      ))}
      {average.meta.partial && <Badge tone="warn">partial: {average.meta.warnings.join("; ")}</Badge>}
    </div>
  );
}
