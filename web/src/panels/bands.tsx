/** Four bands of all GPUs of some place: average, 95th percentile, extremes, and the average a week before. */

import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { memo, useMemo, useState } from "react";
import { type Band, bandName, bandsQuery } from "../api/bands";
import { combined } from "../api/combined";
import { type Catalog, catalogQuery, type Filters, unitOf } from "../api/fleet";
import { type Answer, align } from "../api/series";
import { spreadLabels } from "../chart/axis";
import { type Cursor, createCursor, useCursor } from "../chart/cursor";
import { GUTTER_PX, type Line, type Picture, plotBounds } from "../chart/options";
import { Plot } from "../chart/plot";
import { TimeAxis } from "../chart/time_axis";
import { breakAtGaps, type Columns, findGaps, newest, rowAt } from "../model/columns";
import { parseResolution } from "../model/window";
import { toFailure } from "../ui/failure";
import { useFailure } from "../ui/panel";
import { Badge, ErrorState } from "../ui/states";
import { useSteady } from "../ui/steady";
import { formatClock, formatDay, formatTick } from "../ui/times";
import { formatNumber, formatTicks, formatValue, scaleFor } from "../ui/units";
import type { View } from "../ui/view";
import { BAND_METRICS, BAND_PX, BAND_THEMES, BandsWaiting, type BandTheme } from "./bands_waiting";
import "./bands.css";

const NO_MARKER = createCursor();
const LABEL_GAP_PX = 13;
const AGGREGATES: readonly Band[] = ["avg", "min", "max", "p95"];

const WEEK_MS = 7 * 86_400_000;
const BEFORE = "before";

const LINES: readonly Line[] = [
  { column: BEFORE, stroke: "ghost", width: 1, dash: [4, 3] },
  { column: "max", stroke: "s1", width: 0.75, bandTo: "min" },
  { column: "p95", stroke: "s1", width: 1, dash: [1, 3] },
  { column: "avg", stroke: "s1", width: 1.5 },
  { column: "min", stroke: "s1", width: 0.75 },
];

/** What is asked at once: percentiles are made of seconds and take longer, so the rest does not wait for them. */
const REQUESTS: readonly (readonly Band[])[] = [["avg", "min", "max"], ["p95"]];

/** The aggregates of one metric as columns named by aggregate, beside the average a week before. */
function bandColumns(metric: string, { answers, before }: Answers): Columns {
  const parts = answers.map((answer, index) => ({
    ts: answer?.columns.ts ?? [],
    values: Object.fromEntries(
      (REQUESTS[index] ?? []).map((name) => [name, answer?.columns.values[bandName(metric, name)] ?? []]),
    ),
  }));
  const known = align(parts);
  const earlier = before?.columns.values[bandName(metric, "avg")] ?? [];
  const at = new Map(before?.columns.ts.map((instant, index) => [instant, earlier[index] ?? null]));
  return { ts: known.ts, values: { ...known.values, [BEFORE]: known.ts.map((ts) => at.get(ts) ?? null) } };
}

interface Answers {
  answers: readonly (Answer | undefined)[];
  before: Answer | undefined;
}

interface BandProps {
  theme: BandTheme;
  of: string;
  found: Answers;
  catalog: Catalog | undefined;
  cursor: Cursor;
  marker: Cursor;
  onZoom: (span: [number, number]) => void;
  onZoomOut: () => void;
}

function useBandPicture({ theme, found, catalog }: BandProps): {
  picture: Picture;
  columns: Columns;
  slot: number;
} {
  const unit = unitOf(catalog, theme.metric);
  return useMemo(() => {
    const [average] = found.answers;
    const columns = bandColumns(theme.metric, found);
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
  }, [theme, found, unit]);
}

function valueAt(columns: Columns, name: string, at: number | null, slot: number): number | null {
  if (at === null) return newest(columns.values[name]);
  const row = rowAt(columns.ts, at, slot);
  return row === null ? null : (columns.values[name]?.[row] ?? null);
}

function EndLabels({ picture, theme, unit }: { picture: Picture; theme: BandTheme; unit: string }) {
  const [low, high] = plotBounds(picture);
  const inner = BAND_PX - GUTTER_PX.top - GUTTER_PX.bottom;
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
      {spreadLabels(labels, LABEL_GAP_PX, BAND_PX - 4).map((label) => (
        <span key={label.name} className={label.name} style={{ top: label.y }}>
          {label.name} {texts.get(label.name)}
        </span>
      ))}
    </div>
  );
}

/** How far a figure is from the one it is held against, in the unit of the figure: "+2.7", "±0". */
function formatDifference(value: number, before: number, unit: string, metric: string): string {
  const { divide } = scaleFor(metric, unit, value);
  const text = formatNumber(Math.abs(value - before) / divide, Math.abs(value) / divide >= 100 ? 0 : 1);
  if (text === "0.0" || text === "0") return "±0";
  return `${value < before ? "−" : "+"}${text}`;
}

interface BandHeadProps {
  theme: BandTheme;
  columns: Columns;
  slot: number;
  cursor: Cursor;
  unit: string;
  /** What the answer lacks; empty where it is whole. */
  lacks: string;
}

function BandHead({ theme, columns, slot, cursor, unit, lacks }: BandHeadProps) {
  const at = useCursor(cursor);
  const value = valueAt(columns, "avg", at, slot);
  const before = valueAt(columns, BEFORE, at, slot);
  const day = formatDay((at ?? columns.ts.at(-1) ?? 0) - WEEK_MS);
  return (
    <div className="panel-head">
      <h2>{theme.title}</h2>
      <span className="band-value">
        {at !== null && <small>{formatClock(at)}</small>}
        <b>{formatValue(value, theme.metric, unit)}</b>
        {lacks !== "" && (
          <Badge tone="warn" title={lacks}>
            partial<span className="hidden">: {lacks}</span>
          </Badge>
        )}
        {lacks === "" && value !== null && before !== null && (
          <small title={`against the average at this time on ${day}`}>
            {formatDifference(value, before, unit, theme.metric)} <i className="ghost-line" /> {day}
          </small>
        )}
      </span>
    </div>
  );
}

/** The instant that the page points at; it moves without a new picture. */
function Marker({ at, x: [from, to] }: { at: Cursor; x: Picture["x"] }) {
  const instant = useCursor(at);
  if (instant === null || instant < from || instant > to) return null;
  const { left, right } = GUTTER_PX;
  const share = (instant - from) / (to - from);
  return (
    <i className="band-marker" style={{ left: `calc(${left}px + ${share} * (100% - ${left + right}px))` }} />
  );
}

const BandPanel = memo(function BandPanel(props: BandProps) {
  const { theme, of, catalog, cursor, onZoom, onZoomOut } = props;
  const { picture, columns, slot } = useBandPicture(props);
  const meta = props.found.answers[0]?.meta;
  const unit = unitOf(catalog, theme.metric);
  const told = AGGREGATES.map(
    (name) => `${name} ${formatValue(newest(columns.values[name]), theme.metric, unit)}`,
  );
  return (
    <section className="panel band" aria-label={theme.title}>
      <BandHead
        theme={theme}
        columns={columns}
        slot={slot}
        cursor={cursor}
        unit={unit}
        lacks={meta?.partial ? meta.warnings.join("; ") : ""}
      />
      <div className="band-plot">
        <div className="band-marked">
          <Marker at={props.marker} x={picture.x} />
          <Plot
            picture={picture}
            height={BAND_PX}
            label={`${theme.title} of ${of}: ${told.join(", ")}`}
            cursor={cursor}
            group="bands"
            onZoom={onZoom}
            onZoomOut={onZoomOut}
          />
          <TimeAxis x={picture.x} cursor={cursor} tick={formatTick} clock={formatClock} />
        </div>
        <EndLabels picture={picture} theme={theme} unit={unit} />
      </div>
    </section>
  );
});

export interface BandsProps {
  /** The summary comes first; the bands wait for it. */
  ready: boolean;
  filters: Filters;
  view: View;
  /** Whose they are, for readers who do not see them: "the fleet", "cluster cedar". */
  of: string;
  /** Holds an instant that the page points at. */
  marker?: Cursor;
}

/** The answers of all requests; all metrics come in one each. */
function useBands({ view, ready, filters }: BandsProps) {
  const client = useQueryClient();
  const asked = { metrics: BAND_METRICS, filters, window: view.window };
  const before = useQuery({
    ...bandsQuery({ ...asked, aggregates: ["avg"], earlierMs: WEEK_MS }, client),
    enabled: ready,
  });
  const now = useQueries({
    queries: REQUESTS.map((aggregates) => ({
      ...bandsQuery({ ...asked, aggregates }, client),
      enabled: ready,
    })),
    combine: combined,
  });
  const found = useMemo(() => ({ answers: now.answers, before: before.data }), [now.answers, before.data]);
  return { ...now, found };
}

export function Bands(props: BandsProps) {
  const { view, of, marker = NO_MARKER } = props;
  const { data: catalog } = useQuery(catalogQuery);
  const { found, error, errorUpdatedAt, refetch } = useBands(props);
  const failure = useFailure({ data: found.answers[0], error, errorUpdatedAt, refetch });
  const [cursor] = useState(createCursor);
  const zoom = useSteady(view.actions.zoom);
  const zoomOut = useSteady(view.actions.zoomOut);
  const [average] = found.answers;
  if (average === undefined) {
    if (failure === null) return <BandsWaiting />;
    return (
      <section className="panel bands-failed">
        <div className="panel-head">
          <h2>{BAND_THEMES.map(({ title }) => title).join(", ")}</h2>
        </div>
        <ErrorState failure={toFailure(failure)} onRetry={refetch} />
      </section>
    );
  }
  return (
    <div className="bands">
      {BAND_THEMES.map((theme) => (
        <BandPanel
          key={theme.metric}
          theme={theme}
          of={of}
          found={found}
          catalog={catalog}
          cursor={cursor}
          marker={marker}
          onZoom={zoom}
          onZoomOut={zoomOut}
        />
      ))}
    </div>
  );
}
