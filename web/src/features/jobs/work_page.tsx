/** One job, or one model: its own figures over those of its GPUs on one time axis, and who holds it back. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { eventsQuery } from "../../api/events";
import { type Gpu, gpusQuery } from "../../api/fleet";
import type { GroupedRequest } from "../../api/grouped";
import { ageNow } from "../../api/meta";
import { focusFilter, GpuPanel } from "../../panels/gpu_panel";
import { healthOf } from "../../panels/health";
import { jobPath, modelPath } from "../../panels/ladder";
import { PlaceHead } from "../../panels/place_frame";
import { rowResolution } from "../../panels/rows/row_templates";
import { TimelinePanel } from "../../panels/rows/timeline_panel";
import { useRows } from "../../panels/rows/use_rows";
import { keysBeside } from "../../ui/crumbs";
import { Tiles } from "../../ui/facts";
import { Page } from "../../ui/page";
import { compareNames } from "../../ui/table_sort";
import { countOf, formatValue } from "../../ui/units";
import { keepWindow, toggleTable, useView, type View } from "../../ui/view";
import { type Work, worksOf } from "./jobs";
import { Lag } from "./lag";
import { GPU_METRICS, INFERENCE_METRICS, TRAINING_METRICS, WORK_ROWS } from "./work_rows";
import "./jobs.css";

const STALE_MS = 30_000;
const EVENTS = 300;

export type Kind = "job" | "model";

const WORDS = {
  job: { title: "Jobs", list: "/jobs", path: jobPath },
  model: { title: "Models", list: "/models", path: modelPath },
} as const;

function requestsOf(kind: Kind, name: string, view: View): GroupedRequest[] {
  const shared = {
    filters: { [kind]: name },
    window: view.window,
    resolution: rowResolution(view.span.to - view.span.from),
    limit: 100,
  };
  return [
    { ...shared, metrics: GPU_METRICS, aggregate: "avg,min,max", groupBy: "total" },
    { ...shared, metrics: TRAINING_METRICS, aggregate: "avg", groupBy: "total" },
    { ...shared, metrics: INFERENCE_METRICS, aggregate: "", groupBy: "total" },
  ];
}

function useSiblings(kind: Kind, name: string, gpus: readonly Gpu[], view: View) {
  const names = [...new Set([...gpus.map((gpu) => gpu[kind]), name])].filter(Boolean).sort(compareNames);
  const places = names.map((each) => ({ name: each, to: keepWindow(view, WORDS[kind].path(each)) }));
  return { kind: WORDS[kind].title.toLowerCase(), places, current: name };
}

function factsOf(work: Work | undefined, kind: Kind): string {
  if (work === undefined) return "holds no GPU now";
  const owner = work.team === "" ? "" : `team ${work.team}`;
  const other = kind === "job" ? work.model : countOf(work.jobs, "job");
  const size = `${countOf(work.total, "GPU")} on ${countOf(work.hosts, "host")} in ${work.clusters}`;
  return [other, size, owner].filter(Boolean).join(" · ");
}

function Figures({ work }: { work: Work }) {
  return (
    <Tiles
      label="Now"
      tiles={[
        {
          name: "Mean utilisation",
          value: formatValue(work.utilizationRatio, "gpu_utilization_ratio", "1"),
          than: "over its GPUs",
        },
        { name: "Power", value: formatValue(work.powerWatts, "gpu_power_watts", "W"), than: "now" },
        { name: "GPUs", value: work.total, than: `on ${countOf(work.hosts, "host")}` },
        {
          name: "Not reporting",
          value: work.counts.lost + work.counts.silent,
          than: work.counts.lost + work.counts.silent === 0 ? "all GPUs report" : "GPUs of this job",
        },
      ]}
    />
  );
}

export function WorkPage({ kind, name }: { kind: Kind; name: string }) {
  const view = useView("1h");
  const gpus = useQuery(gpusQuery());
  const events = useQuery(eventsQuery({ [kind]: name, window: view.window, limit: EVENTS }));
  const { query, specs } = useRows(requestsOf(kind, name, view), WORK_ROWS);
  const only = useMemo(() => (gpu: Gpu) => gpu[kind] === name, [kind, name]);
  const all = gpus.data?.gpus ?? [];
  const [work] = useMemo(() => worksOf(all.filter(only), kind), [all, only, kind]);
  const siblings = useSiblings(kind, name, all, view);
  const meta = query.data?.meta;
  const told = (events.data?.events ?? []).filter(
    (event) => event.severity !== "" && event.severity !== "info",
  );
  const words = WORDS[kind];
  return (
    <Page
      title={name}
      view={view}
      health={healthOf(meta, view.now, STALE_MS)}
      up={keepWindow(view, words.list)}
      keys={{
        f: focusFilter,
        t: () => toggleTable(view),
        ...keysBeside(siblings),
      }}
      keyHelp={[
        ["T", "charts or table"],
        ["[ ]", `${kind} before or after`],
        ["F", "filter the list"],
      ]}
    >
      <PlaceHead
        title={name}
        facts={gpus.data === undefined ? "" : factsOf(work, kind)}
        steps={[
          { name: "Fleet", to: keepWindow(view, "/") },
          { name: words.title, to: keepWindow(view, words.list) },
        ]}
        siblings={siblings}
      />
      {work !== undefined && <Figures work={work} />}
      <Lag kind={kind} name={name} view={view} events={told}>
        {(strip) => (
          <TimelinePanel
            title={kind === "job" ? "Job over its GPUs" : "Model over its GPUs"}
            query={query}
            view={view}
            specs={specs}
            events={told}
            ageMs={meta === undefined || !view.window.live ? null : ageNow(meta, view.now)}
            staleMs={STALE_MS}
            none={{
              title: "No sample in this window",
              hint: `No GPU told anything while this ${kind} held it in this time. A wider range may hold its run.`,
            }}
          >
            {strip}
          </TimelinePanel>
        )}
      </Lag>
      <GpuPanel
        query={gpus}
        view={view}
        height={308}
        only={only}
        none={`No GPU is held by this ${kind} now.`}
      />
    </Page>
  );
}
