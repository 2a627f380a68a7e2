/** What a cluster, a rack and a host show alike: where it is, how it stands, its GPUs on a map, its bands and lists. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { catalogQuery, type Filters, type Gpu, type GpuList } from "../api/fleet";
import { Crumbs, type Siblings, type Step } from "../ui/crumbs";
import { Answered, type Answering } from "../ui/panel";
import type { View } from "../ui/view";
import { Counts } from "./counts";
import { EventPanel } from "./event_panel";
import { FOUND, findingsIn } from "./findings";
import { sumsOf } from "./sums";
import { TopPanel } from "./top_panel";
import "./lists.css";

export interface PlaceHeadProps {
  title: string;
  /** Facts about it, beside the title. */
  facts: string;
  steps: readonly Step[];
  siblings: Siblings;
  tools?: ReactNode;
}

export function PlaceHead({ title, facts, steps, siblings, tools }: PlaceHeadProps) {
  return (
    <div className="place-head">
      <div>
        <Crumbs steps={steps} siblings={siblings} />
        <div className="place-title">
          <h1>{title}</h1>
          <span>{facts}</span>
        </div>
      </div>
      {tools}
    </div>
  );
}

export interface PlaceCountsProps {
  query: Answering<GpuList>;
  gpus: readonly Gpu[];
}

export function PlaceCounts({ query, gpus }: PlaceCountsProps) {
  const { data: catalog } = useQuery(catalogQuery);
  if (query.data === undefined) {
    return (
      <section className="panel counts-waiting">
        <Answered query={query} waitsFor="the GPUs of this place" height={76}>
          {() => null}
        </Answered>
      </section>
    );
  }
  return <Counts sums={sumsOf(gpus)} catalog={catalog} />;
}

export function PlaceLists({ filters, view, gpus }: { filters: Filters; view: View; gpus: readonly Gpu[] }) {
  const names = new Map(gpus.map((gpu) => [gpu.id, gpu]));
  return (
    <div className="lists">
      <EventPanel
        title="Newest findings"
        asked={findingsIn(view.window, filters)}
        view={view}
        names={names}
        all={{ ...filters, severity: FOUND }}
      />
      <TopPanel
        title="Hottest"
        sub="5 min, max"
        asked={{
          ...filters,
          metric: "gpu_temperature_celsius",
          aggregate: "max",
          window: "5m",
          n: 5,
          by: "gpu",
        }}
        view={view}
        names={names}
        none="No GPU here tells its temperature."
      />
      <TopPanel
        title="Idlest"
        sub="15 min, mean use"
        asked={{
          ...filters,
          metric: "gpu_utilization_ratio",
          window: "15m",
          n: 5,
          by: "gpu",
          order: "lowest",
        }}
        view={view}
        names={names}
        none="No GPU here tells its use."
      />
      <TopPanel
        title="Most power"
        sub="5 min, mean"
        asked={{ ...filters, metric: "gpu_power_watts", window: "5m", n: 5, by: "gpu" }}
        view={view}
        names={names}
        none="No GPU here tells its power."
      />
    </div>
  );
}
