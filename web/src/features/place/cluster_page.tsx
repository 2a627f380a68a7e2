/** One cluster, or one rack of it: the same ladder, one step down. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type Catalog, catalogQuery, type Filters, type Gpu, type GpuList, gpusQuery } from "../../api/fleet";
import type { MapCell } from "../../api/map";
import { clustersQuery, type PlaceSums } from "../../api/places";
import { Bands } from "../../panels/bands";
import { useFindings } from "../../panels/findings";
import { focusFilter, GpuPanel } from "../../panels/gpu_panel";
import { healthOf } from "../../panels/health";
import { clusterPath, hostPath, rackPath } from "../../panels/ladder";
import { MapPanel } from "../../panels/map/map_panel";
import { PlaceCounts, PlaceHead, PlaceLists } from "../../panels/place_frame";
import { sumsOf } from "../../panels/sums";
import { keysBeside, type Siblings, type Step } from "../../ui/crumbs";
import { Page } from "../../ui/page";
import { type Answering, Panel, useFailure } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { Table } from "../../ui/table";
import { type Column, compareNames, parseSort } from "../../ui/table_sort";
import { countOf, formatNumber } from "../../ui/units";
import { keepWindow, useView, type View } from "../../ui/view";
import { placeColumns } from "./clusters_page";

const STALE_MS = 30_000;
const WORST_FIRST = { key: "status", descending: true };
const IN_CLUSTER = ["cluster"];
/** A filter of series takes that many names at most. */
const HOSTS_MAXIMUM = 900;

function groupSums(gpus: readonly Gpu[], name: (gpu: Gpu) => string): PlaceSums[] {
  const groups = new Map<string, Gpu[]>();
  for (const gpu of gpus) {
    const group = groups.get(name(gpu));
    if (group === undefined) groups.set(name(gpu), [gpu]);
    else group.push(gpu);
  }
  return [...groups].map(([host, members]) => ({
    cluster: members[0]?.cluster ?? "",
    host,
    ...sumsOf(members),
  }));
}

/** How many hosts a host is says nothing. */
function childColumns(catalog: Catalog | undefined, label: string): Column<PlaceSums>[] {
  const columns = placeColumns(catalog, label, (sums) => sums.host);
  return label === "Host" ? columns.filter((column) => column.key !== "hosts") : columns;
}

interface ChildrenProps {
  label: string;
  rows: PlaceSums[];
  view: View;
  to: (name: string) => string;
}

function Children({ label, rows, view, to }: ChildrenProps) {
  const { data: catalog } = useQuery(catalogQuery);
  const columns = useMemo(() => childColumns(catalog, label), [catalog, label]);
  return (
    <Panel title={`${label}s`} sub={formatNumber(rows.length)} className="children-panel">
      <Table
        label={`${label}s`}
        rows={rows}
        columns={columns}
        keyOf={(sums) => sums.host}
        linkOf={(sums) => keepWindow(view, to(sums.host))}
        sort={parseSort(view.params.get("order"), WORST_FIRST)}
        onSort={(order) => view.set({ order })}
        height={308}
        none="Nothing here has reported yet."
      />
    </Panel>
  );
}

/** Names that some GPUs give, once each, as people order them. */
function namesOf(gpus: readonly Gpu[], name: (gpu: Gpu) => string): string[] {
  return [...new Set(gpus.map(name))].filter(Boolean).sort(compareNames);
}

function useSiblings(cluster: string, rack: string | undefined, gpus: readonly Gpu[], view: View): Siblings {
  const clusters = useQuery(clustersQuery);
  if (rack !== undefined) {
    const places = namesOf(gpus, (gpu) => gpu.rack).map((name) => ({
      name,
      to: keepWindow(view, rackPath(cluster, name)),
    }));
    return { kind: "racks", places, current: rack };
  }
  const places = (clusters.data?.clusters ?? []).map((sums) => ({
    name: sums.cluster,
    to: keepWindow(view, clusterPath(sums.cluster)),
  }));
  return { kind: "clusters", places, current: cluster };
}

/** What series of this place are asked for by: a rack is known by its hosts alone. */
function filtersOf(cluster: string, rack: string | undefined, gpus: readonly Gpu[]): Filters {
  if (rack === undefined) return { cluster };
  return {
    cluster,
    host: namesOf(gpus, (gpu) => gpu.host)
      .slice(0, HOSTS_MAXIMUM)
      .join(","),
  };
}

/** What stands there where no GPU of a place is known. */
function Nothing({ name }: { name: string }) {
  return (
    <section className="panel">
      <Empty title={`No GPU of ${name} has reported yet`} command="secondsight up --simulate 200x8">
        An agent on a GPU host, or a simulated fleet, fills this page within seconds. The name may also be
        outside of what you may see.
      </Empty>
    </section>
  );
}

interface FilledProps {
  cluster: string;
  rack: string | undefined;
  view: View;
  query: Answering<GpuList> & { isFetched: boolean };
  gpus: readonly Gpu[];
  only: ((gpu: Gpu) => boolean) | undefined;
}

function Filled({ cluster, rack, view, query, gpus, only }: FilledProps) {
  const onlyCell = useMemo(
    () => (rack === undefined ? undefined : (cell: MapCell) => cell.rack === rack),
    [rack],
  );
  const byId = useMemo(() => new Map(query.data?.gpus.map((gpu) => [gpu.id, gpu])), [query.data]);
  const hosts = namesOf(gpus, (gpu) => gpu.host).join(",");
  // biome-ignore lint/correctness/useExhaustiveDependencies: hosts stands for the GPUs, whose values change
  const filters = useMemo(() => filtersOf(cluster, rack, gpus), [cluster, rack, hosts]);
  const { lasting } = useFindings(filters);
  const racks = namesOf(gpus, (gpu) => gpu.rack);
  const failure = useFailure(query);
  return (
    <>
      <MapPanel
        cluster={cluster}
        view={view}
        at={null}
        lasting={lasting}
        gpus={byId}
        {...(onlyCell === undefined ? {} : { only: onlyCell })}
      />
      {(query.data !== undefined || failure === null) && (
        <Bands
          ready={query.isFetched && gpus.length > 0}
          filters={filters}
          view={view}
          of={rack === undefined ? `cluster ${cluster}` : `rack ${rack}`}
        />
      )}
      {query.data !== undefined && (
        <>
          <PlaceLists filters={filters} view={view} gpus={gpus} />
          {rack === undefined && racks.length > 1 && (
            <Children
              label="Rack"
              rows={groupSums(gpus, (gpu) => gpu.rack)}
              view={view}
              to={(name) => rackPath(cluster, name)}
            />
          )}
          <Children label="Host" rows={groupSums(gpus, (gpu) => gpu.host)} view={view} to={hostPath} />
        </>
      )}
      <GpuPanel
        query={query}
        view={view}
        height={392}
        leaveOut={IN_CLUSTER}
        {...(only === undefined ? {} : { only })}
      />
    </>
  );
}

export function ClusterPage({ cluster, rack }: { cluster: string; rack?: string }) {
  const view = useView("1h");
  const query = useQuery(gpusQuery(cluster));
  const all = query.data?.gpus ?? [];
  const only = useMemo(() => (rack === undefined ? undefined : (gpu: Gpu) => gpu.rack === rack), [rack]);
  const gpus = useMemo(() => (only === undefined ? all : all.filter(only)), [all, only]);
  const siblings = useSiblings(cluster, rack, all, view);
  const steps: Step[] = [
    { name: "Fleet", to: keepWindow(view, "/") },
    { name: "Clusters", to: keepWindow(view, "/clusters") },
    ...(rack === undefined ? [] : [{ name: cluster, to: keepWindow(view, clusterPath(cluster)) }]),
  ];
  const up = rack === undefined ? "/clusters" : clusterPath(cluster);
  const racks = namesOf(gpus, (gpu) => gpu.rack);
  const facts = [
    countOf(gpus.length, "GPU"),
    countOf(namesOf(gpus, (gpu) => gpu.host).length, "host"),
    ...(rack === undefined ? [countOf(racks.length, "rack")] : []),
    namesOf(gpus, (gpu) => gpu.product.replace(/^NVIDIA /, "")).join(", "),
  ];
  return (
    <Page
      title={rack === undefined ? cluster : `${cluster} ${rack}`}
      view={view}
      health={healthOf(query.data?.meta, view.now, STALE_MS)}
      up={keepWindow(view, up)}
      keys={{
        f: focusFilter,
        ...keysBeside(siblings),
      }}
      keyHelp={[
        ["[ ]", `${siblings.kind} before or after`],
        ["F", "filter the list"],
        ["arrows", "walk the map; Enter opens, C compares"],
      ]}
    >
      <PlaceHead
        title={rack ?? cluster}
        facts={query.data === undefined ? "" : facts.filter(Boolean).join(" · ")}
        steps={steps}
        siblings={siblings}
      />
      <PlaceCounts query={query} gpus={gpus} />
      {query.data !== undefined && gpus.length === 0 ? (
        <Nothing name={rack ?? cluster} />
      ) : (
        <Filled cluster={cluster} rack={rack} view={view} query={query} gpus={gpus} only={only} />
      )}
    </Page>
  );
}
