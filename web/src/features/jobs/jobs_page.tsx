/** All jobs, or all models, that hold GPUs now. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Catalog, catalogQuery, gpusQuery, unitOf } from "../../api/fleet";
import { Share } from "../../panels/gpu_columns";
import { Filter, focusFilter } from "../../panels/gpu_panel";
import { healthOf } from "../../panels/health";
import { jobPath, modelPath } from "../../panels/ladder";
import { Troubles, weightOf } from "../../panels/status";
import { Page } from "../../ui/page";
import { Answered, Broken, Panel } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { Table } from "../../ui/table";
import { type Column, parseSort } from "../../ui/table_sort";
import { formatNumber, formatValue } from "../../ui/units";
import { keepWindow, useView } from "../../ui/view";
import { type Work, worksOf } from "./jobs";

const STALE_MS = 30_000;
const LARGEST_FIRST = { key: "gpus", descending: true };

type Kind = "job" | "model";

const WORDS = {
  job: { title: "Jobs", one: "Job", path: jobPath },
  model: { title: "Models", one: "Model", path: modelPath },
} as const;

function text(key: "team" | "model" | "clusters", label: string): Column<Work> {
  return {
    key,
    label,
    width: "minmax(80px, 1fr)",
    wide: true,
    cell: (work) => work[key] || "–",
    sortBy: (work) => work[key] || null,
  };
}

function number(key: "total" | "hosts" | "jobs", label: string, wide: boolean): Column<Work> {
  return {
    key: key === "total" ? "gpus" : key,
    label,
    width: "64px",
    numeric: true,
    wide,
    cell: (work) => formatNumber(work[key]),
    sortBy: (work) => work[key],
  };
}

function columnsOf(kind: Kind, catalog: Catalog | undefined): Column<Work>[] {
  const say = (metric: string, value: number | null) => formatValue(value, metric, unitOf(catalog, metric));
  return [
    {
      key: "name",
      label: WORDS[kind].one,
      width: "minmax(112px, 1.4fr)",
      cell: (work) => work.name,
      sortBy: (work) => work.name,
    },
    text("team", "Team"),
    ...(kind === "job" ? [text("model", "Model")] : [number("jobs", "Jobs", true)]),
    text("clusters", "Cluster"),
    number("hosts", "Hosts", true),
    number("total", "GPUs", false),
    {
      key: "utilization",
      label: "Utilisation",
      width: "112px",
      numeric: true,
      cell: (work) => (
        <Share ratio={work.utilizationRatio} text={say("gpu_utilization_ratio", work.utilizationRatio)} />
      ),
      sortBy: (work) => work.utilizationRatio,
    },
    {
      key: "power",
      label: "Power",
      width: "88px",
      numeric: true,
      wide: true,
      cell: (work) => say("gpu_power_watts", work.powerWatts),
      sortBy: (work) => work.powerWatts,
    },
    {
      key: "status",
      label: "GPUs now",
      width: "minmax(104px, 1fr)",
      wide: true,
      cell: (work) => <Troubles health={work.health} />,
      sortBy: (work) => weightOf(work.health),
    },
  ];
}

function matches(work: Work, find: string): boolean {
  const all = [work.name, work.team, work.model, work.clusters].join(" ").toLowerCase();
  return find
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

function WorksPage({ kind }: { kind: Kind }) {
  const view = useView("1h");
  const query = useQuery(gpusQuery());
  const { data: catalog } = useQuery(catalogQuery);
  const columns = useMemo(() => columnsOf(kind, catalog), [kind, catalog]);
  const works = useMemo(() => worksOf(query.data?.gpus ?? [], kind), [query.data, kind]);
  const find = view.params.get("q") ?? "";
  const { title, path } = WORDS[kind];
  return (
    <Page
      title={title}
      view={view}
      health={healthOf(query.data?.meta, view.now, STALE_MS)}
      up="/"
      keys={{ f: focusFilter }}
      keyHelp={[["F", "filter the list"]]}
    >
      <div className="say">
        <h1>{title}</h1>
        <p className="verdict-line">Those that hold a GPU now.</p>
      </div>
      <Panel
        title={title}
        sub={query.data === undefined ? "" : formatNumber(works.length)}
        tools={
          <>
            <Broken query={query} />
            <Filter label={`Filter ${title.toLowerCase()}`} view={view} />
          </>
        }
      >
        <Answered query={query} waitsFor={`the ${title.toLowerCase()}`} height={240}>
          {() =>
            works.length === 0 ? (
              <Empty title={`No GPU is held by a ${kind}`} command="docs/guides/ownership.md">
                An agent with a Slurm or Kubernetes reader tells who holds its GPUs; so do allocation events.
              </Empty>
            ) : (
              <Table
                label={title}
                rows={works.filter((work) => matches(work, find))}
                columns={columns}
                keyOf={(work) => work.name}
                linkOf={(work) => keepWindow(view, path(work.name))}
                sort={parseSort(view.params.get("sort"), LARGEST_FIRST)}
                onSort={(sort) => view.set({ sort })}
                height="page"
                none={`No ${kind} matches “${find}”.`}
              />
            )
          }
        </Answered>
      </Panel>
    </Page>
  );
}

export function JobsPage() {
  return <WorksPage kind="job" />;
}

export function ModelsPage() {
  return <WorksPage kind="model" />;
}
