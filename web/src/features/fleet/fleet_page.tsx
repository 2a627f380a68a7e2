/** The fleet at a glance. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, memo, Suspense, useMemo, useState } from "react";
import { bandName, bandsQuery } from "../../api/bands";
import { eventsQuery, type Happening } from "../../api/events";
import { catalogQuery, fleetQuery, gpusQuery } from "../../api/fleet";
import { clustersQuery } from "../../api/places";
import { type Cursor, useCursor } from "../../chart/cursor";
import { isStreaming, useLive } from "../../live/streams";
import { BAND_METRICS, BandsWaiting } from "../../panels/bands_waiting";
import { Counts, Verdict } from "../../panels/counts";
import { EventPanel } from "../../panels/event_panel";
import { FOUND, findingsIn, useFindings } from "../../panels/findings";
import { focusFilter, GpuPanel } from "../../panels/gpu_panel";
import { healthOf } from "../../panels/health";
import { MapPanel } from "../../panels/map/map_panel";
import { Scrub } from "../../panels/map/scrub";
import { useNames } from "../../panels/names";
import { secondAt, useScrub } from "../../panels/scrub_state";
import { withLive } from "../../panels/sums";
import { TopPanel } from "../../panels/top_panel";
import { Page } from "../../ui/page";
import { Answered } from "../../ui/panel";
import { useView, type View } from "../../ui/view";
import "../../panels/lists.css";

/** Charts come after the map, and so does what draws them. */
const Bands = lazy(() => import("../../panels/bands").then((module) => ({ default: module.Bands })));

const DEFAULT_RANGE = "1h";
const STALE_MS = 30_000;
/** Health changes less often than the figures that the stream brings. */
const SLOW_EVERY_MS = 5000;
const TEMPERATURE = "gpu_temperature_celsius";
const TICKS = 100;
const EVERYWHERE = {};

/** What a part of the page shows; the long list of GPUs waits for the map. */
interface Seen {
  view: View;
  ready: boolean;
}

interface TimedMapProps extends Seen {
  scrub: Cursor;
  onFirst: () => void;
}

/** What stands as ticks on the time of the map. */
function gravest(events: readonly Happening[] = []): readonly Happening[] {
  return events.filter(({ severity }) => severity !== "warning").slice(0, TICKS);
}

const TimedMap = memo(function TimedMap({ view, scrub, ready, onFirst }: TimedMapProps) {
  const at = useCursor(scrub);
  const names = useNames(ready);
  const client = useQueryClient();
  const { lasting } = useFindings(EVERYWHERE, at, ready);
  const events = useQuery({ ...eventsQuery(findingsIn(view.window)), enabled: ready });
  const ticks = useMemo(() => gravest(events.data?.events), [events.data]);
  const bands = useQuery({
    ...bandsQuery(
      { metrics: BAND_METRICS, aggregates: ["avg", "min", "max"], filters: EVERYWHERE, window: view.window },
      client,
    ),
    enabled: false,
  });
  const hottest = bands.data?.columns.values[bandName(TEMPERATURE, "max")];
  return (
    <MapPanel cluster="" view={view} at={at} lasting={lasting} gpus={names} onFirst={onFirst}>
      <Scrub
        from={view.span.from}
        to={view.span.to}
        at={at}
        onAt={(ms) => scrub.set(secondAt(ms))}
        events={ticks}
        spark={
          hottest === undefined
            ? null
            : { ts: bands.data?.columns.ts ?? [], values: hottest, label: "hottest GPU, °C" }
        }
      />
    </MapPanel>
  );
});

function Lists({ view, ready }: Seen) {
  const names = useNames(ready);
  return (
    <div className="lists">
      <EventPanel
        title="Newest findings"
        asked={findingsIn(view.window)}
        view={view}
        names={names}
        all={{ severity: FOUND }}
        ready={ready}
      />
      <TopPanel
        title="Hottest"
        sub="5 min, max"
        asked={{ metric: TEMPERATURE, aggregate: "max", window: "5m", n: 5, by: "gpu" }}
        view={view}
        names={names}
        none="No GPU tells its temperature."
        ready={ready}
      />
      <TopPanel
        title="Idlest, allocated"
        sub="15 min, mean use"
        asked={{ metric: "gpu_utilization_ratio", window: "15m", n: 8, by: "job", order: "lowest" }}
        view={view}
        names={names}
        none="No job holds a GPU."
        ready={ready}
      />
      <TopPanel
        title="Slowest"
        sub="step lag behind the median"
        asked={{ metric: "training_rank_step_lag_seconds", window: "5m", n: 5, by: "job" }}
        view={view}
        names={names}
        none="No job tells how far its ranks lag."
        ready={ready}
      />
    </div>
  );
}

export function FleetPage() {
  const view = useView(DEFAULT_RANGE);
  const [mapped, setMapped] = useState(false);
  const live = useLive("", mapped);
  const streams = isStreaming(live);
  const fleet = useQuery({ ...fleetQuery, ...(streams ? { refetchInterval: SLOW_EVERY_MS } : {}) });
  const now = fleet.data === undefined || !streams ? fleet.data : withLive(fleet.data, live.board);
  const isEmpty = fleet.data !== undefined && fleet.data.total === 0;
  const gpus = useQuery({ ...gpusQuery(), enabled: mapped || isEmpty });
  const { data: catalog } = useQuery(catalogQuery);
  const clusters = useQuery(clustersQuery);
  const scrub = useScrub(view);
  const [onFirst] = useState(() => () => setMapped(true));
  return (
    <Page
      title="Fleet"
      view={view}
      health={healthOf(now?.meta, view.now, STALE_MS)}
      keys={{ f: focusFilter }}
      keyHelp={[
        ["F", "filter the list"],
        ["arrows", "walk the map; Enter opens, C compares"],
      ]}
    >
      <div className="say">
        <h1>Fleet</h1>
        {now !== undefined && !isEmpty && (
          <Verdict fleet={now} clusters={clusters.data?.clusters ?? []} catalog={catalog} view={view} />
        )}
      </div>
      {now === undefined ? (
        <section className="panel counts-waiting">
          <Answered query={fleet} waitsFor="the summary of the fleet" height={76}>
            {() => null}
          </Answered>
        </section>
      ) : (
        <Counts sums={now} catalog={catalog} />
      )}
      {!isEmpty && <TimedMap view={view} ready={mapped} scrub={scrub} onFirst={onFirst} />}
      {!isEmpty && (
        <Suspense fallback={<BandsWaiting />}>
          {mapped ? (
            <Bands ready filters={EVERYWHERE} view={view} of="the fleet" marker={scrub} />
          ) : (
            <BandsWaiting />
          )}
        </Suspense>
      )}
      {!isEmpty && <Lists view={view} ready={mapped} />}
      <GpuPanel query={gpus} view={view} height={392} />
    </Page>
  );
}

export function GpusPage() {
  const view = useView(DEFAULT_RANGE);
  const gpus = useQuery(gpusQuery());
  return (
    <Page
      title="GPUs"
      view={view}
      health={healthOf(gpus.data?.meta, view.now, STALE_MS)}
      up="/"
      keys={{ f: focusFilter }}
      keyHelp={[["F", "filter the list"]]}
    >
      <div className="say">
        <h1>GPUs</h1>
      </div>
      <GpuPanel query={gpus} view={view} height="page" />
    </Page>
  );
}
