/** One host: its GPUs side by side, its CPUs, memory, network and disks, and what happened, on one time line. */

import { useQuery } from "@tanstack/react-query";
import { eventsQuery, factsQuery } from "../../api/events";
import { catalogQuery, hostQuery } from "../../api/fleet";
import { type GroupedRequest, groupedAddress } from "../../api/grouped";
import { ageNow } from "../../api/meta";
import { clusterQuery } from "../../api/places";
import { Counts } from "../../panels/counts";
import { healthOf } from "../../panels/health";
import { hostPath, rackPath, stepsTo } from "../../panels/ladder";
import { PlaceHead } from "../../panels/place_frame";
import { rowResolution } from "../../panels/rows/row_templates";
import { TimelinePanel } from "../../panels/rows/timeline_panel";
import { useRows } from "../../panels/rows/use_rows";
import { sumsOf } from "../../panels/sums";
import { CopyAs, toCurl } from "../../ui/copy_as";
import { keysBeside } from "../../ui/crumbs";
import { Tiles } from "../../ui/facts";
import { Page } from "../../ui/page";
import { compareNames } from "../../ui/table_sort";
import { keepWindow, toggleTable, useView, type View } from "../../ui/view";
import { HostGpus } from "./host_gpus";
import { GPU_METRICS, HOST_ROWS, NODE_METRICS } from "./host_rows";

const STALE_MS = 30_000;
const EVENTS = 300;

function requestsOf(host: string, view: View): GroupedRequest[] {
  const shared = {
    filters: { host },
    window: view.window,
    resolution: rowResolution(view.span.to - view.span.from),
    limit: 200,
  };
  return [
    { ...shared, metrics: GPU_METRICS, aggregate: "avg,min,max", groupBy: "host" },
    { ...shared, metrics: NODE_METRICS, aggregate: "", groupBy: "" },
  ];
}

/** The hosts beside this one: of its rack where that is known, else of its cluster. */
function useSiblings(host: string, cluster: string, view: View) {
  const found = useQuery(clusterQuery(cluster));
  const names = (found.data?.hosts ?? []).map((sums) => sums.host).sort(compareNames);
  const places = names.map((name) => ({ name, to: keepWindow(view, hostPath(name)) }));
  return { kind: "hosts", places, current: host };
}

function Software({ host }: { host: string }) {
  const facts = useQuery(factsQuery({ host, metric: "node_info", limit: 1 }));
  const [fact] = facts.data ?? [];
  if (fact === undefined) return null;
  return (
    <Tiles
      label="Software of this host"
      tiles={Object.entries(fact.attributes)
        .slice(0, 6)
        .map(([name, value]) => ({ name, value }))}
    />
  );
}

export function HostPage({ host }: { host: string }) {
  const view = useView("1h");
  const gpus = useQuery(hostQuery(host));
  const { data: catalog } = useQuery(catalogQuery);
  const events = useQuery(eventsQuery({ host, window: view.window, limit: EVENTS }));
  const asked = requestsOf(host, view);
  const { query, specs } = useRows(asked, HOST_ROWS);
  const [first] = gpus.data ?? [];
  const siblings = useSiblings(host, first?.cluster ?? "", view);
  const meta = query.data?.meta;
  const place = first === undefined ? undefined : { ...first, host: "" };
  const up = first === undefined ? "/clusters" : rackPath(first.cluster, first.rack);
  const told = (events.data?.events ?? []).filter((event) => event.severity !== "" || event.gpu === "");
  return (
    <Page
      title={host}
      view={view}
      health={healthOf(meta, view.now, STALE_MS)}
      up={keepWindow(view, up)}
      keys={{
        t: () => toggleTable(view),
        ...keysBeside(siblings),
      }}
      keyHelp={[
        ["T", "charts or table"],
        ["[ ]", "host before or after"],
      ]}
    >
      <PlaceHead
        title={host}
        facts={first === undefined ? "" : `${gpus.data?.length ?? 0} × ${first.product}`}
        steps={stepsTo(place, view)}
        siblings={siblings}
        tools={
          <CopyAs
            forms={asked.flatMap((each, at) => [
              {
                name: `curl, ${at === 0 ? "GPUs" : "host"}`,
                text: () => toCurl(groupedAddress(each, view.span, "csv")),
              },
            ])}
          />
        }
      />
      {gpus.data !== undefined && <Counts sums={sumsOf(gpus.data)} catalog={catalog} />}
      <HostGpus query={gpus} host={host} view={view} />
      <TimelinePanel
        title="Host and GPUs on one time line"
        query={query}
        view={view}
        specs={specs}
        events={told}
        ageMs={meta === undefined || !view.window.live ? null : ageNow(meta, view.now)}
        staleMs={STALE_MS}
        none={{
          title: "No sample in this window",
          hint: "This host sent nothing in this time. The gaps page says why, and collectors says when its agent was last heard.",
        }}
      />
      <Software host={host} />
    </Page>
  );
}
