/** One GPU, by the second. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { catalogQuery, gpuQuery } from "../../api/fleet";
import { ageNow, platformOffset } from "../../api/meta";
import { type Answer, pollEvery, telemetryQuery } from "../../api/series";
import { createCursor } from "../../chart/cursor";
import { TimeAxis } from "../../chart/time_axis";
import {
  parseResolution,
  parseWindow,
  RANGES,
  rangeOf,
  resolutionFor,
  type Window,
} from "../../model/window";
import { toFailure } from "../../ui/failure";
import { navigate, usePlace, withParams } from "../../ui/navigation";
import { useNow } from "../../ui/now";
import { Page } from "../../ui/page";
import { Segment } from "../../ui/segment";
import { Badge, DisconnectedBadge, Empty, ErrorState, Skeleton, StaleBadge } from "../../ui/states";
import { formatClock, formatTick } from "../../ui/times";
import { windowActions } from "../../ui/window_actions";
import { GpuHeader, titleOf, Verdict } from "./gpu_header";
import { Peers, pathOf, siblings, usePeers } from "./peers";
import { SampleTable } from "./sample_table";
import { ThemeRow } from "./theme_row";
import { METRICS, THEMES } from "./themes";
import { hasData, toView, type View } from "./view";
import "./gpu.css";

const DEFAULT_RANGE = "15m";
const STALE_MS = 15_000;
const RETRY_MS = 5000;

function useTelemetry(gpuId: string, window: Window) {
  const client = useQueryClient();
  const lengthMs = window.live ? window.lengthMs : window.to - window.from;
  const asked = { gpuId, metrics: METRICS, window, resolution: resolutionFor(lengthMs) };
  return useQuery({
    ...telemetryQuery(asked, client),
    refetchInterval: (query) => {
      if (!window.live) return false;
      const resolution = parseResolution(query.state.data?.meta.resolution ?? "");
      return pollEvery(resolution, query.state.status === "error");
    },
  });
}

/** What is on the screen: the window, sliding with the platform's clock while live. */
function spanOf(window: Window, answer: Answer | undefined, now: number): { from: number; to: number } {
  if (!window.live) return window;
  const offset = answer === undefined ? 0 : platformOffset(answer.meta, answer.columns.ts.at(-1));
  const to = Math.floor((now + offset) / 1000) * 1000;
  return { from: to - window.lengthMs, to };
}

function ResolutionBadge({ answer }: { answer: Answer }) {
  const { resolution, tier } = answer.meta;
  const parts = [resolution, resolution === "1s" ? "raw" : "rollup", tier === "" ? "" : `${tier} tier`];
  return <Badge title="Resolution and tier of what is drawn">{parts.filter(Boolean).join(" · ")}</Badge>;
}

function GapBadge({ view }: { view: View }) {
  if (view.gaps.length === 0) return null;
  const times = view.gaps.map((gap) => `${formatClock(gap.start)} to ${formatClock(gap.end)}`).join(", ");
  return (
    <Badge tone="warn" title={times}>
      {view.gaps.length === 1 ? "1 gap" : `${view.gaps.length} gaps`}
    </Badge>
  );
}

function ChartsWaiting() {
  return THEMES.map((theme, index) => (
    <section key={theme.title} className="theme-row" aria-label={theme.title}>
      <div className="gutter">
        <h2>{theme.title}</h2>
      </div>
      <div className="theme-plot">
        <Skeleton height={theme.heightPx + 20} waitsFor="the samples of this GPU" quiet={index > 0} />
      </div>
    </section>
  ));
}

interface ChartsProps {
  view: View;
  onZoom: (span: [number, number]) => void;
  onZoomOut: () => void;
}

function Charts({ view, onZoom, onZoomOut }: ChartsProps) {
  const { data: catalog } = useQuery(catalogQuery);
  const [cursor] = useState(createCursor);
  return (
    <>
      {THEMES.filter((theme) => hasData(theme, view.columns)).map((theme) => (
        <ThemeRow
          key={theme.title}
          theme={theme}
          view={view}
          catalog={catalog}
          cursor={cursor}
          onZoom={onZoom}
          onZoomOut={onZoomOut}
        />
      ))}
      <div className="axis-row">
        <TimeAxis x={view.x} cursor={cursor} tick={formatTick} clock={formatClock} />
      </div>
    </>
  );
}

/** The same function for ever, which does what the newest one does. */
function useSteady<A extends unknown[]>(action: (...args: A) => void): (...args: A) => void {
  const latest = useRef(action);
  useEffect(() => {
    latest.current = action;
  });
  return useCallback((...args: A) => latest.current(...args), []);
}

export function GpuPage({ id }: { id: string }) {
  const place = usePlace();
  const now = useNow();
  const window = parseWindow(place.search, DEFAULT_RANGE);
  const gpu = useQuery(gpuQuery(id));
  const telemetry = useTelemetry(id, window);
  const { data: catalog } = useQuery(catalogQuery);
  const answer = telemetry.data;
  const span = spanOf(window, answer, now);
  const actions = windowActions({ place, window, span, defaultRange: DEFAULT_RANGE });
  const zoom = useSteady(actions.zoom);
  const zoomOut = useSteady(actions.zoomOut);
  const { from, to } = span;
  const isTable = new URLSearchParams(place.search).get("view") === "table";
  const show = (kind: string) =>
    navigate(withParams(place, { view: kind === "table" ? kind : undefined }), { replace: true });
  const peers = usePeers(gpu.data?.host);
  const beside = siblings(peers, id);
  const ageMs = answer === undefined ? null : ageNow(answer.meta, now);
  const liveAgeMs = window.live ? ageMs : null;
  const isStale = liveAgeMs !== null && liveAgeMs > STALE_MS;
  const view = useMemo(
    () => (answer === undefined ? undefined : toView(answer, { from, to }, isStale)),
    [answer, from, to, isStale],
  );
  return (
    <Page
      title={titleOf(gpu.data, id)}
      span={span}
      live={window.live}
      behindMs={window.live ? 0 : now - to}
      onToggleLive={actions.toggleLive}
      health={{
        ageMs: liveAgeMs,
        staleMs: STALE_MS,
        completeThrough: answer?.meta.completeThrough ?? null,
        coverageRatio: answer?.meta.coverage?.ratio ?? null,
      }}
      keys={{
        t: () => show(isTable ? "charts" : "table"),
        "[": () => beside !== null && navigate(pathOf(beside.before, place)),
        "]": () => beside !== null && navigate(pathOf(beside.after, place)),
        escape: () => navigate("/gpus"),
      }}
    >
      <div className="gpu-top">
        <GpuHeader gpu={gpu.data} id={id} />
        <Peers peers={peers} id={id} place={place} catalog={catalog} />
      </div>
      <Verdict gpu={gpu.data} columns={answer?.columns} catalog={catalog} ageMs={ageMs} />
      <section className="panel timeline" aria-label="Time line">
        <div className="timeline-bar">
          <Segment
            label="range"
            choices={RANGES.map((range) => ({ value: range.name, label: range.label }))}
            value={rangeOf(window)}
            onChoose={actions.choose}
          />
          <span className="badges">
            {telemetry.isError && answer !== undefined ? (
              <DisconnectedBadge
                nextTryAt={telemetry.errorUpdatedAt + RETRY_MS}
                onTry={() => void telemetry.refetch()}
              />
            ) : (
              <StaleBadge ageMs={liveAgeMs} limitMs={STALE_MS} />
            )}
            {answer?.meta.partial === true && (
              <Badge tone="warn">partial: {answer.meta.warnings.join("; ")}</Badge>
            )}
            {view !== undefined && <GapBadge view={view} />}
            {answer !== undefined && <ResolutionBadge answer={answer} />}
          </span>
          <Segment
            label="show as"
            choices={[
              { value: "charts", label: "Charts" },
              { value: "table", label: "Table" },
            ]}
            value={isTable ? "table" : "charts"}
            onChoose={show}
          />
        </div>
        <TimelineBody
          view={view}
          error={telemetry.error}
          onRetry={() => void telemetry.refetch()}
          isTable={isTable}
          onZoom={zoom}
          onZoomOut={zoomOut}
        />
      </section>
    </Page>
  );
}

interface BodyProps {
  view: View | undefined;
  error: Error | null;
  onRetry: () => void;
  isTable: boolean;
  onZoom: (span: [number, number]) => void;
  onZoomOut: () => void;
}

function TimelineBody({ view, error, onRetry, isTable, onZoom, onZoomOut }: BodyProps) {
  const { data: catalog } = useQuery(catalogQuery);
  if (view === undefined) {
    return error === null ? <ChartsWaiting /> : <ErrorState failure={toFailure(error)} onRetry={onRetry} />;
  }
  if (view.columns.ts.length === 0) {
    return (
      <Empty title="No sample in this window">
        This GPU sent nothing between {formatClock(view.x[0])} and {formatClock(view.x[1])} UTC. A wider range
        may hold its last samples; the log of its host's agent says why there are no newer ones.
      </Empty>
    );
  }
  if (isTable) return <SampleTable view={view} catalog={catalog} />;
  return <Charts view={view} onZoom={onZoom} onZoomOut={onZoomOut} />;
}
