/** Linked charts on one time axis, with events above and lanes between them; the same window as a table. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import type { Happening } from "../../api/events";
import { type Catalog, catalogQuery } from "../../api/fleet";
import { createCursor } from "../../chart/cursor";
import { TimeAxis } from "../../chart/time_axis";
import { toFailure } from "../../ui/failure";
import type { Answering } from "../../ui/panel";
import { Broken, useFailure } from "../../ui/panel";
import { Segment } from "../../ui/segment";
import { Badge, Empty, ErrorState, Skeleton, StaleBadge } from "../../ui/states";
import { useSteady } from "../../ui/steady";
import { formatClock, formatResolution, formatTick } from "../../ui/times";
import type { View } from "../../ui/view";
import { ChartRow } from "./chart_row";
import { EventLane } from "./event_lane";
import { Lanes } from "./lanes";
import { SampleTable } from "./sample_table";
import type { LaneSpec, RowSpec } from "./spec";
import { type Drawn, hasData, type Timeline, toTimeline } from "./timeline";
import { ZoomLevels } from "./zoom_levels";
import "./rows.css";

const EVENT_SPAN_MS = 60_000;
const WAITING_PX = 320;

export interface TimelinePanelProps {
  title: string;
  query: Answering<Drawn>;
  view: View;
  specs: readonly RowSpec[];
  lanes?: readonly LaneSpec[];
  events: readonly Happening[];
  /** Age of the newest sample while live; null where it does not matter. */
  ageMs: number | null;
  staleMs: number;
  /** What is missing where nothing came, and what would fill it. */
  none: { title: string; hint: string };
  /** Controls of this page, at the right of the bar. */
  tools?: ReactNode;
  /** Rows of this page under the charts, on the same axis. */
  children?: (timeline: Timeline) => ReactNode;
}

/** The names of one row per chart, with nothing in them yet. */
function Waiting({ specs }: { specs: readonly RowSpec[] }) {
  if (specs.length === 0) return <Skeleton height={WAITING_PX} waitsFor="the samples" />;
  return specs.map((spec, index) => (
    <section key={spec.title} className="theme-row" aria-label={spec.title}>
      <div className="gutter">
        <h2>{spec.title}</h2>
      </div>
      <div className="theme-plot">
        <Skeleton height={spec.heightPx + 20} waitsFor="the samples" quiet={index > 0} />
      </div>
    </section>
  ));
}

interface ChartsProps extends Pick<TimelinePanelProps, "specs" | "lanes" | "events" | "view" | "children"> {
  timeline: Timeline;
  catalog: Catalog | undefined;
}

function Charts({ timeline, catalog, specs, lanes = [], events, view, children }: ChartsProps) {
  const [cursor] = useState(createCursor);
  const zoom = useSteady(view.actions.zoom);
  const zoomOut = useSteady(view.actions.zoomOut);
  const pick = useSteady((event: Happening) =>
    view.actions.zoom([event.at - EVENT_SPAN_MS / 2, event.at + EVENT_SPAN_MS / 2]),
  );
  return (
    <>
      <EventLane events={events} x={timeline.x} onPick={pick} />
      {specs
        .filter((spec) => hasData(spec, timeline.columns))
        .map((spec) => (
          <ChartRow
            key={spec.title}
            spec={spec}
            view={timeline}
            catalog={catalog}
            cursor={cursor}
            onZoom={zoom}
            onZoomOut={zoomOut}
          />
        ))}
      {lanes.map((lane) => (
        <Lanes key={lane.title} spec={lane} view={timeline} catalog={catalog} cursor={cursor} />
      ))}
      {children?.(timeline)}
      <div className="axis-row">
        <TimeAxis x={timeline.x} cursor={cursor} tick={formatTick} clock={formatClock} />
      </div>
    </>
  );
}

function GapBadge({ timeline }: { timeline: Timeline }) {
  if (timeline.gaps.length === 0) return null;
  const times = timeline.gaps.map((gap) => `${formatClock(gap.start)} to ${formatClock(gap.end)}`).join(", ");
  return (
    <Badge tone="warn" title={times}>
      {timeline.gaps.length === 1 ? "1 gap" : `${timeline.gaps.length} gaps`}
    </Badge>
  );
}

function Badges({
  query,
  timeline,
  ageMs,
  staleMs,
}: Pick<TimelinePanelProps, "query" | "ageMs" | "staleMs"> & {
  timeline: Timeline | undefined;
}) {
  const { data, error } = query;
  if (data === undefined) return <span className="badges" />;
  const { meta } = data;
  const tier = meta.tier === "" ? "" : ` · ${meta.tier} tier`;
  // What says that nothing comes takes the room of the others, so that the head stays one line.
  if (error !== null) {
    return (
      <span className="badges">
        <Broken query={query} />
      </span>
    );
  }
  return (
    <span className="badges">
      <StaleBadge ageMs={ageMs} limitMs={staleMs} />
      {meta.partial && <Badge tone="warn">partial: {meta.warnings.join("; ")}</Badge>}
      {timeline !== undefined && <GapBadge timeline={timeline} />}
      <Badge title="Resolution and tier of what is drawn">
        {formatResolution(meta.resolution)}
        {tier}
      </Badge>
    </span>
  );
}

function toldAnything({ values }: Timeline["columns"]): boolean {
  return Object.values(values).some((cells) => cells.some((cell) => cell !== null));
}

/** What is shown where a request gave no sample. */
function Body(props: TimelinePanelProps & { timeline: Timeline | undefined; isTable: boolean }) {
  const { data: catalog } = useQuery(catalogQuery);
  const { timeline, isTable, query, specs, none, events } = props;
  const failure = useFailure(query);
  if (timeline === undefined) {
    if (failure === null) return <Waiting specs={specs} />;
    return <ErrorState failure={toFailure(failure)} onRetry={() => void query.refetch()} />;
  }
  if (!toldAnything(timeline.columns) && events.length === 0) {
    return <Empty title={none.title}>{none.hint}</Empty>;
  }
  if (isTable) return <SampleTable specs={specs} view={timeline} catalog={catalog} />;
  return <Charts {...props} timeline={timeline} catalog={catalog} />;
}

export function TimelinePanel(props: TimelinePanelProps) {
  const { title, query, view, ageMs, staleMs, tools } = props;
  const answer = query.data;
  const { from, to } = view.span;
  const isStale = ageMs !== null && ageMs > staleMs;
  const timeline = useMemo(
    () => (answer === undefined ? undefined : toTimeline(answer, { from, to }, isStale)),
    [answer, from, to, isStale],
  );
  const isTable = view.params.get("view") === "table";
  return (
    <section className="panel timeline" aria-label={title}>
      <div className="timeline-bar">
        <ZoomLevels view={view} resolution={formatResolution(answer?.meta.resolution ?? "")} />
        <Badges query={query} timeline={timeline} ageMs={ageMs} staleMs={staleMs} />
        {tools}
        <Segment
          label="show as"
          choices={[
            { value: "charts", label: "Charts" },
            { value: "table", label: "Table" },
          ]}
          value={isTable ? "table" : "charts"}
          onChoose={(kind) => view.set({ view: kind === "table" ? kind : undefined })}
        />
      </div>
      <Body {...props} timeline={timeline} isTable={isTable} />
    </section>
  );
}
