/** The fleet at a glance, and every GPU of it. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { catalogQuery, fleetQuery, gpusQuery, type GpuList as List } from "../../api/fleet";
import { ageNow, platformOffset } from "../../api/meta";
import { parseWindow, RANGES, rangeOf } from "../../model/window";
import { toFailure } from "../../ui/failure";
import { navigate, type Place, usePlace, withParams } from "../../ui/navigation";
import { useNow } from "../../ui/now";
import { Page } from "../../ui/page";
import { Segment } from "../../ui/segment";
import { DisconnectedBadge, Empty, ErrorState, Skeleton, StaleBadge } from "../../ui/states";
import { formatNumber } from "../../ui/units";
import { windowActions } from "../../ui/window_actions";
import { Bands } from "./bands";
import { Counts, Verdict } from "./counts";
import { GpuList } from "./gpu_list";
import { parseSort } from "./gpu_rows";
import "./fleet.css";

const DEFAULT_RANGE = "1h";
const STALE_MS = 30_000;
const RETRY_MS = 5000;

function newestOf(list: List | undefined): number | undefined {
  let most: number | undefined;
  for (const gpu of list?.gpus ?? []) {
    if (gpu.lastSeen !== null && (most === undefined || gpu.lastSeen > most)) most = gpu.lastSeen;
  }
  return most;
}

function ListPanel({ place, tall }: { place: Place; tall: boolean }) {
  const gpus = useQuery(gpusQuery);
  const { data: catalog } = useQuery(catalogQuery);
  const now = useNow();
  const params = new URLSearchParams(place.search);
  const newest = useMemo(() => newestOf(gpus.data), [gpus.data]);
  const list = gpus.data;
  const offset = list === undefined ? 0 : platformOffset(list.meta, newest);
  return (
    <section className={tall ? "panel gpu-panel tall" : "panel gpu-panel"} aria-label="List of GPUs">
      <div className="panel-head">
        <h2>GPUs</h2>
        <span className="sub">{list === undefined ? "" : formatNumber(list.gpus.length)}</span>
        <span className="push">
          {gpus.isError && list !== undefined && (
            <DisconnectedBadge nextTryAt={gpus.errorUpdatedAt + RETRY_MS} onTry={() => void gpus.refetch()} />
          )}
          {list !== undefined && <StaleBadge ageMs={ageNow(list.meta, now)} limitMs={STALE_MS} />}
        </span>
      </div>
      {list === undefined && gpus.error !== null && (
        <ErrorState failure={toFailure(gpus.error)} onRetry={() => void gpus.refetch()} />
      )}
      {list === undefined && gpus.error === null && <Skeleton height={240} waitsFor="the list of GPUs" />}
      {list !== undefined && list.gpus.length === 0 && (
        <Empty title="No GPU has reported yet" command="secondsight up --simulate 200x8">
          An agent on a GPU host, or a simulated fleet, fills this list within seconds.
        </Empty>
      )}
      {list !== undefined && list.gpus.length > 0 && (
        <GpuList
          gpus={list.gpus}
          catalog={catalog}
          find={params.get("q") ?? ""}
          sort={parseSort(params.get("sort"))}
          onSort={(sort) => navigate(withParams(place, { sort }), { replace: true })}
          now={now + offset}
        />
      )}
    </section>
  );
}

function useFrame(title: string) {
  const place = usePlace();
  const fleet = useQuery(fleetQuery);
  const now = useNow();
  const window = parseWindow(place.search, DEFAULT_RANGE);
  const second = Math.floor(now / 1000) * 1000;
  const span = window.live ? { from: second - window.lengthMs, to: second } : window;
  const meta = fleet.data?.meta;
  const actions = windowActions({ place, window, span, defaultRange: DEFAULT_RANGE });
  const page = {
    title,
    find: new URLSearchParams(place.search).get("q") ?? "",
    onFind: (text: string) => navigate(withParams(place, { q: text }), { replace: true }),
    span,
    live: window.live,
    behindMs: window.live ? 0 : now - span.to,
    onToggleLive: actions.toggleLive,
    health: {
      ageMs: meta === undefined ? null : ageNow(meta, now),
      staleMs: STALE_MS,
      completeThrough: meta?.completeThrough ?? null,
      coverageRatio: meta?.coverage?.ratio ?? null,
    },
  };
  return { place, fleet, window, actions, page };
}

export function FleetPage() {
  const { place, fleet, window, actions, page } = useFrame("Fleet");
  const { data: catalog } = useQuery(catalogQuery);
  const isEmpty = fleet.data !== undefined && fleet.data.total === 0;
  return (
    <Page {...page}>
      <div className="say">
        <h1>Fleet</h1>
        {fleet.data !== undefined && !isEmpty && <Verdict fleet={fleet.data} catalog={catalog} />}
        <span className="push">
          <Segment
            label="range"
            choices={RANGES.map((range) => ({ value: range.name, label: range.label }))}
            value={rangeOf(window)}
            onChoose={actions.choose}
          />
        </span>
      </div>
      {fleet.data === undefined && fleet.error === null && (
        <section className="panel counts-waiting">
          <Skeleton height={76} waitsFor="the summary of the fleet" />
        </section>
      )}
      {fleet.data === undefined && fleet.error !== null && (
        <section className="panel counts-waiting">
          <ErrorState failure={toFailure(fleet.error)} onRetry={() => void fleet.refetch()} />
        </section>
      )}
      {fleet.data !== undefined && <Counts fleet={fleet.data} catalog={catalog} />}
      {!isEmpty && (
        <Bands
          ready={fleet.isFetched}
          window={window}
          catalog={catalog}
          onZoom={actions.zoom}
          onZoomOut={actions.zoomOut}
        />
      )}
      <ListPanel place={place} tall={false} />
    </Page>
  );
}

export function GpusPage() {
  const { place, page } = useFrame("GPUs");
  return (
    <Page {...page} keys={{ escape: () => navigate("/") }}>
      <div className="say">
        <h1>GPUs</h1>
      </div>
      <ListPanel place={place} tall />
    </Page>
  );
}
